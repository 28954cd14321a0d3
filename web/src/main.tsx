import './base.css';
import './pages.css';
import { render } from 'preact';
import { App } from './app';
import { follow, look, signedOut } from './store';
import { post } from './api';

// `billow dashboard` opens the page with a code that works once; it stands behind the #, which no server sees, and is taken away.
async function begin(): Promise<void> {
  const code = /code=([\w-]+)/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, '', '/#/');
    try {
      await post('/v1/session', { code });
    } catch {
      signedOut.value = true;
    }
  }
  await look();
  if (!signedOut.value) follow();
}

// The page comes with its frame, so that something is seen before the script runs; the script draws it anew.
const app = document.getElementById('app')!;
app.textContent = '';
render(<App />, app);
void begin();
