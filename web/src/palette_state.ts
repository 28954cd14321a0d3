// Whether the command palette is open: apart, because its chunk is loaded when it is opened first.
import { signal } from '@preact/signals';

export const paletteOpen = signal(false);
