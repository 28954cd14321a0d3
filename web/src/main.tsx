import './frame/base.css';
import './frame/pages.css';
import './frame/tables.css';
import './frame/details.css';
import './frame/lists.css';
import 'uplot/dist/uPlot.min.css';
import './time/time.css';
import { render } from 'preact';
import { App } from './frame/app';
import { follow, look, route, signedOut } from './data/store';
import { post } from './data/api';

// `billow dashboard` opens the page with a one-time code after the #, which servers never see. It
// is removed from the address.
async function begin(): Promise<void> {
  const code = /code=([\w-]+)/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, '', '/#/');
    route.value = '/';
    try {
      await post('/v1/session', { code });
    } catch {
      signedOut.value = true;
    }
  }
  await look();
  if (!signedOut.value) follow();
}

// index.html contains the frame, so that it shows before the script runs; the script replaces it.
const app = document.getElementById('app')!;
app.textContent = '';
render(<App />, app);
void begin();
