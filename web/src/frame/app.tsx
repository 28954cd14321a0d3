// The frame: navigation, sign-in, help, notices, and the current page.
import { signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, post, problem } from '../data/api';
import { attention } from '../data/attention';
import { Costs } from '../fleet/costs';
import { Endpoints } from '../endpoints/endpoints';
import { Help, helpOpen, listenToKeys } from './keys';
import { JobPage } from '../jobs/job';
import { Jobs } from '../jobs/jobs';
import { NodePage, Nodes } from '../fleet/nodes';
import { watchForNotifications } from './notifications';
import { Overview } from './overview';
import { lazy } from '../parts/lazy';
import { nameOfPage, others, pages } from './pages';
import { openPalette, paletteOpen } from './palette_state';
import { ProviderLinks } from './sign_in';
import { Ask, Empty } from '../parts/ui';
import {
  away,
  follow,
  jobs,
  jobsTick,
  look,
  notices,
  ready,
  route,
  signedOut,
} from '../data/store';
import { status, summary } from '../data/store';

const menuOpen = signal(false);

const Compare = lazy(() => import('../time/compare').then((m) => m.Compare));
const rare = () => import('./rare');
const Activity = lazy(() => rare().then((m) => m.Activity));
const Admin = lazy(() => rare().then((m) => m.Admin));
const Advisor = lazy(() => rare().then((m) => m.Advisor));
const RunForm = lazy(() => rare().then((m) => m.RunForm));
const TerminalPage = lazy(() => rare().then((m) => m.TerminalPage));
const WastePage = lazy(() => rare().then((m) => m.WastePage));
const More = lazy(() => rare().then((m) => m.More));
const ResourcePage = lazy(() => rare().then((m) => m.ResourcePage));
const EndpointPage = lazy(() => import('../endpoints/endpoint_page').then((m) => m.EndpointPage));
const Settings = lazy(() => rare().then((m) => m.Settings));
const Palette = lazy(() => rare().then((m) => m.Palette));

function SignIn() {
  const error = useSignal('');
  useEffect(() => {
    document.title = 'Sign in – Billow';
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    const token = new FormData(event.target as HTMLFormElement).get('token');
    try {
      await post('/v1/session', { token });
      await look();
      follow();
    } catch (e) {
      error.value = problem(e);
    }
  };
  return (
    <main class="signin">
      <Logo />
      <h1>Sign in to Billow</h1>
      <p>
        Run <code>billow dashboard</code> on the head's machine to open this page signed in, or
        paste a token:
      </p>
      <ProviderLinks />
      <form onSubmit={submit}>
        <label>
          Token <input name="token" type="password" autocomplete="off" required />
        </label>
        <button>Sign in</button>
      </form>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
    </main>
  );
}

function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
      <path d="M3 21c4.300 0 4.300-4.500 8.700-4.500S16 21 20.300 21s4.300-4.500 8.700-4.500" />
      <path
        d="M3 14c4.300 0 4.300-4.500 8.700-4.500S16 14 20.300 14s4.300-4.500 8.700-4.500"
        opacity=".55"
      />
    </svg>
  );
}

function NotFound({ path }: { path: string }) {
  return (
    <section>
      <h1>Page not found</h1>
      <Empty title={`There is no page ${path}`}>
        <p>
          The link may be old. Go to the <a href="#/">overview</a>, or press <kbd>Ctrl</kbd>{' '}
          <kbd>K</kbd> and type what you look for.
        </p>
      </Empty>
    </section>
  );
}

const resources = new Set(
  others.filter((o) => o.under === '/more' && o.path !== '/settings').map((o) => o.path),
);
function Page() {
  const path = route.value.split('?')[0];
  const job = /^\/jobs\/([\d.]+)$/.exec(path),
    node = /^\/nodes\/(.+)/.exec(path),
    endpoint = /^\/endpoints\/(.+)/.exec(path),
    terminal = /^\/terminal\/([\d.]+)$/.exec(path);
  if (job) return <JobPage id={job[1]} key={job[1]} />;
  if (node) return <NodePage name={decodeURIComponent(node[1])} key={node[1]} />;
  if (endpoint) return <EndpointPage name={decodeURIComponent(endpoint[1])} key={endpoint[1]} />;
  if (terminal) return <TerminalPage id={terminal[1]} />;
  if (resources.has(path)) return <ResourcePage path={path} key={path} />;
  switch (path) {
    case '/':
      return <Overview />;
    case '/jobs':
      return <Jobs />;
    case '/run':
      return <RunForm key={route.value} />;
    case '/terminal':
      return <TerminalPage id="" />;
    case '/endpoints':
      return <Endpoints />;
    case '/nodes':
      return <Nodes />;
    case '/compare':
      return <Compare />;
    case '/costs':
      return <Costs />;
    case '/waste':
      return <WastePage />;
    case '/advisor':
      return <Advisor />;
    case '/activity':
      return <Activity />;
    case '/more':
      return <More />;
    case '/settings':
      return <Settings />;
    case '/admin':
      return <Admin />;
    default:
      return <NotFound path={path} />;
  }
}

// The title of the window: the job, node or page that is shown.
function titleOf(path: string): string {
  const [, first = '', rest] = path.split('/');
  const page = nameOfPage(`/${first}`);
  if (!rest) return page ?? (first ? 'Page not found' : 'Overview');
  if (first === 'jobs' || first === 'terminal') {
    jobsTick.value;
    const row = jobs.get(Number(rest.split('.')[0]));
    const what = row?.name || row?.command.slice(0, 40) || '';
    return `${first === 'jobs' ? 'Job' : 'Terminal'} ${rest}${what ? ` ${what}` : ''}`;
  }
  const one = { nodes: 'Node', endpoints: 'Endpoint' }[first];
  return one ? `${one} ${decodeURIComponent(rest)}` : (page ?? 'Page not found');
}

// After a change of page the keyboard continues at the beginning of its content, and screen readers
// say where one is. The first page keeps the focus where the browser put it.
function useArrival(path: string, title: string) {
  const first = useSignal(true);
  const said = useSignal('');
  useEffect(() => {
    if (first.value) {
      first.value = false;
      return;
    }
    said.value = title;
    const focused = document.activeElement;
    if (focused && focused !== document.body && focused.closest('main')) return;
    document.getElementById('main')?.focus({ preventScroll: true });
  }, [path]);
  return said.value;
}

async function signOut(): Promise<void> {
  try {
    await call('DELETE', '/v1/session');
  } catch {
    /* the session has already ended */
  }
  await look();
  signedOut.value = true;
}

function Navigation({ at }: { at: string }) {
  return (
    <nav id="nav" aria-label="Pages" class={menuOpen.value ? 'open' : ''}>
      {pages.map(({ path, name, icon }) => (
        <a href={`#${path}`} aria-current={at === path ? 'page' : undefined}>
          <svg viewBox="0 0 24 24" aria-hidden="true">
            {icon}
          </svg>
          <span>{name}</span>
          {path === '/jobs' && summary.value && summary.value.running > 0 && (
            <b class="count" aria-label={`${summary.value.running} running`}>
              {summary.value.running.toLocaleString()}
            </b>
          )}
        </a>
      ))}
      {status.value && (
        <button class="link leave" onClick={signOut}>
          Sign out {status.value.you.user}
        </button>
      )}
    </nav>
  );
}

function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((n) => (
        <p key={n.id}>
          {n.href ? <a href={n.href}>{n.text}</a> : n.text}
          {n.action && (
            <button class="small" onClick={n.action.run}>
              {n.action.label}
            </button>
          )}
        </p>
      ))}
    </div>
  );
}

export function App() {
  useEffect(
    () =>
      listenToKeys(() => {
        menuOpen.value = false;
      }),
    [],
  );
  useEffect(() => watchForNotifications(), []);
  const path = route.value.split('?')[0];
  useEffect(() => {
    menuOpen.value = false;
  }, [path]);
  const first = `/${path.split('/')[1] ?? ''}`;
  const at = others.find((o) => o.path === first)?.under ?? first;
  const title = titleOf(path);
  const said = useArrival(path, title);
  const mark = attention.value.some((a) => a.grave) ? '● ' : '';
  useEffect(() => {
    if (!signedOut.value) document.title = `${mark}${title} – Billow`;
  }, [title, mark, signedOut.value]);
  if (signedOut.value) return <SignIn />;
  return (
    <div class="frame">
      <a
        class="skip"
        href="#main"
        onClick={(e) => {
          e.preventDefault();
          document.getElementById('main')?.focus();
        }}
      >
        Skip to content
      </a>
      <p class="sr" role="status" id="arrival">
        {said}
      </p>
      <header>
        <a class="brand" href="#/">
          <Logo />
          Billow
        </a>
        <button
          class="quiet menu"
          aria-expanded={menuOpen.value}
          aria-controls="nav"
          onClick={() => {
            menuOpen.value = !menuOpen.value;
          }}
        >
          {nameOfPage(at) ?? 'Menu'} ▾
        </button>
        <button class="quiet find" title="Go to a page, job or node" onClick={openPalette}>
          <span>Go to…</span> <kbd>Ctrl K</kbd>
        </button>
        <Navigation at={at} />
        <div class="who">
          {status.value && (
            <>
              <span>{status.value.you.user}</span>
              <button class="link" onClick={signOut}>
                Sign out
              </button>
            </>
          )}
          <button
            class="quiet small"
            aria-label="Keys"
            onClick={() => {
              helpOpen.value = !helpOpen.value;
            }}
          >
            ?
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {away.value && (
          <p class="banner" role="status">
            {away.value}
          </p>
        )}
        {status.value && ready.value ? <Page /> : <p class="note">Loading…</p>}
      </main>
      <Notices />
      {helpOpen.value && <Help />}
      {paletteOpen.value && <Palette />}
      <Ask />
    </div>
  );
}
