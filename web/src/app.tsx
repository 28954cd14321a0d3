// The frame: navigation, sign-in, help, and the page the address names.
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { ApiError, post } from './api';
import { JobPage, Jobs } from './jobs';
import { Nodes } from './nodes';
import { Overview } from './overview';
import { RunForm } from './run';
import { Admin } from './admin';
import { away, follow, refresh, route, signedOut, status } from './store';

const helpOpen = signal(false);
const pages: [string, string][] = [['/', 'Overview'], ['/jobs', 'Jobs'], ['/run', 'Run'], ['/nodes', 'Nodes'], ['/admin', 'Admin']];

function SignIn() {
  const error = useRef(signal(''));
  const submit = async (event: Event) => {
    event.preventDefault();
    const token = new FormData(event.target as HTMLFormElement).get('token');
    try {
      await post('/v1/session', { token });
      await refresh();
      follow();
    } catch (e) {
      error.current.value = e instanceof ApiError ? `${e.message}. ${e.hint}` : 'the head does not answer';
    }
  };
  return (
    <main class="signin">
      <h1>Billow</h1>
      <p>On the machine of the head, <code>billow dashboard</code> opens this page signed in. Or paste a token:</p>
      <form onSubmit={submit}>
        <label>Token <input name="token" type="password" autocomplete="off" required /></label>
        <button>Sign in</button>
      </form>
      <p role="alert" class="bad">{error.current}</p>
    </main>
  );
}

function Help() {
  return (
    <dialog open aria-label="Keyboard help" onClick={() => { helpOpen.value = false; }}>
      <h2>Keys</h2>
      <dl>
        <dt>/</dt><dd>search jobs</dd>
        <dt>g o, g j, g r, g n, g a</dt><dd>overview, jobs, run, nodes, admin</dd>
        <dt>↑ ↓ Enter</dt><dd>move through a list, open</dd>
        <dt>?</dt><dd>this help</dd>
        <dt>Esc</dt><dd>close</dd>
      </dl>
    </dialog>
  );
}

function Page() {
  const path = route.value;
  const job = /^\/jobs\/([\d.]+)/.exec(path);
  if (job) return <JobPage id={job[1]} key={job[1]} />;
  if (path.startsWith('/jobs')) return <Jobs />;
  if (path.startsWith('/run')) return <RunForm />;
  if (path.startsWith('/nodes')) return <Nodes />;
  if (path.startsWith('/admin')) return <Admin />;
  return <Overview />;
}

export function App() {
  useEffect(() => {
    let g = false;
    const keys: Record<string, string> = { o: '/', j: '/jobs', r: '/run', n: '/nodes', a: '/admin' };
    const onKey = (event: KeyboardEvent) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test((event.target as HTMLElement).tagName);
      if (event.key === 'Escape') { helpOpen.value = false; (document.activeElement as HTMLElement | null)?.blur(); }
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === '?') helpOpen.value = !helpOpen.value;
      else if (event.key === '/') {
        event.preventDefault();
        if (!route.value.startsWith('/jobs')) location.hash = '/jobs';
        window.setTimeout(() => document.querySelector<HTMLInputElement>('input[type=search]')?.focus(), 0);
      } else if (g && keys[event.key]) location.hash = keys[event.key];
      g = event.key === 'g';
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
  if (signedOut.value) return <SignIn />;
  const at = '/' + (route.value.split('/')[1] ?? '');
  return (
    <>
      <header>
        <a class="brand" href="#/">Billow</a>
        <nav aria-label="Pages">
          {pages.map(([path, name]) => <a href={`#${path}`} aria-current={at === path ? 'page' : undefined}>{name}</a>)}
        </nav>
        <span class="who">{status.value ? `${status.value.you.user} · ${status.value.version}` : ''}</span>
        <button class="quiet" aria-label="Keyboard help" onClick={() => { helpOpen.value = !helpOpen.value; }}>?</button>
      </header>
      {away.value && <p class="banner" role="status">{away.value}</p>}
      <main>{status.value ? <Page /> : <p class="empty">Asking the head…</p>}</main>
      {helpOpen.value && <Help />}
    </>
  );
}
