// Log text with ANSI colours, as elements. Text becomes text nodes only: no log line can become markup.
import type { ComponentChildren } from 'preact';

const colours = ['k', 'r', 'g', 'y', 'b', 'm', 'c', 'w'];

export function ansi(text: string): ComponentChildren[] {
  const out: ComponentChildren[] = [];
  let classes = '';
  for (const part of text.split(/(\x1b\[[0-9;]*[A-Za-z])/)) {
    const code = /^\x1b\[([0-9;]*)([A-Za-z])$/.exec(part);
    if (code) {
      if (code[2] !== 'm') continue;  // cursor movements mean nothing in a log
      for (const n of (code[1] || '0').split(';').map(Number)) {
        if (n === 0) classes = '';
        else if (n === 1) classes += ' a-bold';
        else if ((n >= 30 && n <= 37) || (n >= 90 && n <= 97)) classes = classes.replace(/ a-[krgybmcw]\b/, '') + ` a-${colours[n % 10]}`;
        else if (n === 39) classes = classes.replace(/ a-[krgybmcw]\b/, '');
      }
    } else if (part) {
      out.push(classes ? <span class={classes.trim()}>{part}</span> : part);
    }
  }
  return out;
}
