// The frame: navigation, sign-in, help, notices, and the current page.
import { signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { ComponentChildren } from 'preact';
import { call, post, problem } from './api';
import { Activity } from './activity';
import { Admin } from './admin';
import { Advisor } from './advisor';
import { Costs } from './costs';
import { Endpoints } from './endpoints';
import { JobPage } from './job';
import { Jobs } from './jobs';
import { NodePage, Nodes } from './nodes';
import { Overview } from './overview';
import { RunForm } from './run';
import { ProviderLinks } from './sign_in';
import { TerminalPage } from './terminal';
import { WastePage } from './waste';
import { Ask } from './ui';
import {
  attention,
  away,
  follow,
  look,
  notices,
  ready,
  route,
  signedOut,
  status,
  summary,
} from './store';

const helpOpen = signal(false);
const menuOpen = signal(false);
const pages: [string, string, string, ComponentChildren][] = [
  ['/', 'Overview', 'o', <path d="M3 12l9-8 9 8M6 10v9h12v-9" />],
  ['/jobs', 'Jobs', 'j', <path d="M4 6h16M4 12h16M4 18h10" />],
  ['/run', 'Run', 'r', <path d="M7 4l12 8-12 8z" />],
  ['/terminal', 'Terminal', 't', <path d="M4 5h16v14H4zM7 9l3 3-3 3M12 15h5" />],
  [
    '/endpoints',
    'Endpoints',
    'e',
    <path d="M12 4a8 8 0 100 16 8 8 0 000-16M4 12h16M12 4c3 3 3 13 0 16M12 4c-3 3-3 13 0 16" />,
  ],
  ['/nodes', 'Nodes', 'n', <path d="M4 4h16v7H4zM4 13h16v7H4zM8 7.5h.01M8 16.5h.01" />],
  [
    '/costs',
    'Costs',
    'c',
    <path d="M12 3v18M16 7c-1-1.500-7-2-7 1.500 0 4 8 2.500 8 6.500 0 3.500-7 3-8.500 1" />,
  ],
  [
    '/advisor',
    'Advisor',
    'v',
    <path d="M9 18h6M10 21h4M12 3a6 6 0 014 10.500c-1 1-1 2-1 2.500H9c0-.500 0-1.500-1-2.500A6 6 0 0112 3z" />,
  ],
  ['/admin', 'Admin', 'a', <path d="M12 12a4 4 0 100-8 4 4 0 000 8M4 21c0-4 4-6 8-6s8 2 8 6" />],
];

function SignIn() {
  const error = useSignal('');
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

function Help() {
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    box.current?.showModal();
  }, []);
  return (
    <dialog
      ref={box}
      aria-label="Keys"
      onClose={() => {
        helpOpen.value = false;
      }}
      onClick={(e) => {
        if (e.target === box.current) helpOpen.value = false;
      }}
    >
      <h2>Keys</h2>
      <dl class="keys">
        <dt>
          <kbd>/</kbd>
        </dt>
        <dd>search jobs</dd>
        {pages.map(([, name, key]) => (
          <>
            <dt>
              <kbd>g</kbd> <kbd>{key}</kbd>
            </dt>
            <dd>{name.toLowerCase()}</dd>
          </>
        ))}
        <dt>
          <kbd>↑</kbd> <kbd>↓</kbd> <kbd>Enter</kbd>
        </dt>
        <dd>move through a list, open</dd>
        <dt>
          <kbd>?</kbd>
        </dt>
        <dd>this help</dd>
        <dt>
          <kbd>Esc</kbd>
        </dt>
        <dd>close</dd>
      </dl>
      <p class="actions end">
        <button
          class="quiet"
          onClick={() => {
            helpOpen.value = false;
          }}
        >
          Close
        </button>
      </p>
    </dialog>
  );
}

function Page() {
  const path = route.value.split('?')[0];
  const job = /^\/jobs\/([\d.]+)/.exec(path),
    node = /^\/nodes\/(.+)/.exec(path),
    terminal = /^\/terminal\/([\d.]+)/.exec(path);
  if (job) return <JobPage id={job[1]} key={job[1]} />;
  if (node) return <NodePage name={decodeURIComponent(node[1])} key={node[1]} />;
  switch (path.split('/')[1]) {
    case 'jobs':
      return <Jobs />;
    case 'run':
      return <RunForm key={route.value} />;
    case 'terminal':
      return <TerminalPage id={terminal?.[1] ?? ''} />;
    case 'endpoints':
      return <Endpoints />;
    case 'nodes':
      return <Nodes />;
    case 'costs':
      return <Costs />;
    case 'waste':
      return <WastePage />;
    case 'advisor':
      return <Advisor />;
    case 'activity':
      return <Activity />;
    case 'admin':
      return <Admin />;
    default:
      return <Overview />;
  }
}

export function App() {
  useEffect(() => {
    let g = false;
    const onKey = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const inTerminal = target.closest?.('.term-host') != null;
      const typing = inTerminal || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
      if (event.key === 'Escape') {
        helpOpen.value = false;
        menuOpen.value = false;
        if (typing && !inTerminal) target.blur();
      }
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const page = g && pages.find(([, , key]) => key === event.key);
      if (event.key === '?') helpOpen.value = !helpOpen.value;
      else if (event.key === '/') {
        event.preventDefault();
        const here = document.querySelector<HTMLInputElement>('main input[type=search]');
        if (here) return here.focus();
        location.hash = '/jobs';
        window.setTimeout(
          () => document.querySelector<HTMLInputElement>('main input[type=search]')?.focus(),
          50,
        );
      } else if (page) location.hash = page[0];
      g = event.key === 'g';
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
  useEffect(() => {
    menuOpen.value = false;
  }, [route.value]);
  const first = route.value.split('?')[0].split('/')[1] ?? '';
  // Pages that are not in the navigation belong to one that is.
  const at = '/' + (({ waste: 'costs', activity: '' } as Record<string, string>)[first] ?? first);
  const name = pages.find(([path]) => path === at)?.[1];
  useEffect(() => {
    const mark = attention.value.some((a) => a.grave) ? '● ' : '';
    document.title = `${mark}${name ?? 'Billow'} – Billow`;
  }, [name, attention.value.length]);
  if (signedOut.value) return <SignIn />;
  const leave = async () => {
    try {
      await call('DELETE', '/v1/session');
    } catch {
      /* the session has already ended */
    }
    signedOut.value = true;
  };
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
          {name ?? 'Menu'} ▾
        </button>
        <nav id="nav" aria-label="Pages" class={menuOpen.value ? 'open' : ''}>
          {pages.map(([path, label, , icon]) => (
            <a href={`#${path}`} aria-current={at === path ? 'page' : undefined}>
              <svg viewBox="0 0 24 24" aria-hidden="true">
                {icon}
              </svg>
              <span>{label}</span>
              {path === '/jobs' && summary.value && summary.value.running > 0 && (
                <b class="count" aria-label={`${summary.value.running} running`}>
                  {summary.value.running.toLocaleString()}
                </b>
              )}
            </a>
          ))}
        </nav>
        <div class="who">
          {status.value && (
            <>
              <span>{status.value.you.user}</span>
              <button class="link" onClick={leave}>
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
      {helpOpen.value && <Help />}
      <Ask />
    </div>
  );
}
