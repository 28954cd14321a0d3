// xterm.js in a chunk that only terminals load. Nothing of ours is imported here, so that the chunk
// shares no code with the first page.
// build.mjs compiles this file and its packages with `document` replaced by strict_document.ts.
import { FitAddon } from '@xterm/addon-fit';
import { SearchAddon } from '@xterm/addon-search';
import { Unicode11Addon } from '@xterm/addon-unicode11';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Terminal, type ITheme } from '@xterm/xterm';
import css from 'text:@xterm/xterm/css/xterm.css';
import { abandon, adopt, strictDocument } from './strict_document';

const scrollbackLines = 10_000;

// The page's colours; the sixteen of the terminal have at least 4.5 : 1 on its background.
function theme(): ITheme {
  const style = getComputedStyle(document.documentElement);
  const background = style.getPropertyValue('--term-bg').trim();
  const foreground = style.getPropertyValue('--term-fg').trim();
  return {
    background,
    foreground,
    cursor: foreground,
    cursorAccent: background,
    selectionBackground: '#3a5f9e',
    black: '#7a8494',
    red: '#ff7b76',
    green: '#55c878',
    yellow: '#e6b84d',
    blue: '#7aabff',
    magenta: '#d08fe2',
    cyan: '#4fc7d8',
    white: '#c9d1dc',
    brightBlack: '#98a5b6',
    brightRed: '#ff9d99',
    brightGreen: '#7fe0a0',
    brightYellow: '#f4d27c',
    brightBlue: '#a3c6ff',
    brightMagenta: '#e4b5f2',
    brightCyan: '#86e0ec',
    brightWhite: '#ffffff',
  };
}

export interface OpenedTerminal {
  terminal: Terminal;
  search: SearchAddon;
  fit(): void;
  dispose(): void;
}

// Opens a terminal that fills the element and follows its size.
export function openTerminal(host: HTMLElement, label: string): OpenedTerminal {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  adopt(sheet);
  const font = getComputedStyle(host);
  const terminal = new Terminal({
    allowProposedApi: true,
    cursorBlink: true,
    documentOverride: strictDocument,
    fontFamily: font.fontFamily,
    fontSize: 14,
    lineHeight: 1.2,
    scrollback: scrollbackLines,
    theme: theme(),
  });
  const fitting = new FitAddon();
  const search = new SearchAddon();
  terminal.loadAddon(fitting);
  terminal.loadAddon(search);
  terminal.loadAddon(new Unicode11Addon());
  terminal.loadAddon(new WebLinksAddon());
  terminal.unicode.activeVersion = '11';
  terminal.open(host);
  terminal.textarea!.setAttribute('aria-label', label);
  const watch = new ResizeObserver(() => fitting.fit());
  watch.observe(host);
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const recolour = () => {
    terminal.options.theme = theme();
  };
  scheme.addEventListener('change', recolour);
  fitting.fit();
  return {
    terminal,
    search,
    fit: () => fitting.fit(),
    dispose: () => {
      scheme.removeEventListener('change', recolour);
      watch.disconnect();
      terminal.dispose();
      abandon(sheet);
    },
  };
}
