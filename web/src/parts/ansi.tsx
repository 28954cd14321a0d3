// Log text with ANSI colours as elements. Text becomes text nodes only, never markup.
import type { ComponentChildren } from 'preact';

const colours = ['k', 'r', 'g', 'y', 'b', 'm', 'c', 'w'];
const escape = /(\x1b\[[0-9;:?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\))/;

export const plain = (text: string) => text.replace(new RegExp(escape, 'g'), '');

function marked(text: string, needle: string): ComponentChildren {
  if (!needle) return text;
  const out: ComponentChildren[] = [];
  let at = 0;
  for (
    let hit = text.toLowerCase().indexOf(needle);
    hit >= 0;
    hit = text.toLowerCase().indexOf(needle, at)
  ) {
    if (hit > at) out.push(text.slice(at, hit));
    out.push(<mark>{text.slice(hit, hit + needle.length)}</mark>);
    at = hit + needle.length;
  }
  out.push(text.slice(at));
  return out;
}

export function ansi(text: string, needle = ''): ComponentChildren[] {
  if (!text.includes('\x1b')) return [marked(text, needle)];
  const out: ComponentChildren[] = [];
  let classes = '';
  for (const part of text.split(escape)) {
    if (part.startsWith('\x1b')) {
      const code = /^\x1b\[([0-9;:]*)m$/.exec(part);
      if (!code) continue; // cursor movements and titles have no meaning in a log
      const numbers = (code[1] || '0').split(/[;:]/).map(Number);
      for (let i = 0; i < numbers.length; i++) {
        const n = numbers[i];
        if (n === 0) classes = '';
        else if (n === 1) classes += ' a-bold';
        else if (n === 2) classes += ' a-dim';
        else if (n === 22) classes = classes.replace(/ a-(bold|dim)\b/g, '');
        else if ((n >= 30 && n <= 37) || (n >= 90 && n <= 97))
          classes = classes.replace(/ a-[krgybmcw]\b/, '') + ` a-${colours[n % 10]}`;
        else if (n === 39) classes = classes.replace(/ a-[krgybmcw]\b/, '');
        // Palette and true colours are skipped: the log has eight.
        else if (n === 38 || n === 48) i += numbers[i + 1] === 5 ? 2 : 4;
      }
    } else if (part) {
      out.push(
        classes ? <span class={classes.trim()}>{marked(part, needle)}</span> : marked(part, needle),
      );
    }
  }
  return out;
}
