// The command palette's state: apart, because its chunk is loaded when it is opened first.
import { signal } from '@preact/signals';

export const paletteOpen = signal(false);
export const paletteText = signal('');
// Enter was pressed before there was a result: the first one is opened once it is there.
export const openFirst = signal(false);

export function openPalette(): void {
  paletteText.value = '';
  openFirst.value = false;
  paletteOpen.value = true;
}

// A key that was pressed after the palette was asked for and before it is shown.
export function typeAhead(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') paletteOpen.value = false;
  else if (event.key === 'Enter') openFirst.value = true;
  else if (event.key === 'Backspace') paletteText.value = paletteText.value.slice(0, -1);
  else if (event.key.length === 1) paletteText.value += event.key;
  else return;
  event.preventDefault();
}
