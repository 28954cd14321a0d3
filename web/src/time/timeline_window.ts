// Which part of time the Gantt chart asks the head for.
import type { View } from './blocks';

// What to ask for: half a view more on either side, in steps, so that small moves ask for nothing.
export function windowOf(view: View): View {
  const span = view.to - view.from;
  const grid = 2 ** Math.floor(Math.log2(span / 4));
  return {
    from: Math.floor((view.from - span / 2) / grid) * grid,
    to: Math.ceil((view.to + span / 2) / grid) * grid,
  };
}
// Whether a window still serves a view: it covers it, and is not much coarser.
export const serves = (got: View | null, view: View) =>
  !!got &&
  got.from <= view.from &&
  got.to >= view.to &&
  got.to - got.from <= 6 * (view.to - view.from);
