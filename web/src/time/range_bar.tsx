// The time range of a page: presets, a custom range, steps in time, and a link to exactly this
// view.
import { useSignal } from '@preact/signals';
import { notify, route } from '../data/store';
import { absolute, presets, resolved, withRange, type Range } from './range';

// With `push`, the browser's Back returns to the range before.
export function setRange(range: Range | null, push: boolean): void {
  const to = withRange(route.peek(), range);
  if (to === route.peek()) return;
  if (push) location.hash = to;
  else {
    history.replaceState(null, '', `#${to}`);
    route.value = to;
  }
}

const local = (ms: number) => {
  const d = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return d.toISOString().slice(0, 16);
};

export function RangeBar({
  range,
  fallback,
  onZoom,
  onPan,
  whole,
}: {
  range: Range;
  fallback: Range;
  onZoom?: (factor: number) => void;
  onPan?: (share: number) => void;
  whole?: string; // the word for the range that the page has by itself
}) {
  const custom = useSignal(false);
  const error = useSignal('');
  const same = (r: Range) => r.from === range.from && r.to === range.to;
  const now = Date.now();
  const given = resolved(range, now);
  const known = given.from < given.to;
  const view = known ? given : { from: now - 3_600_000, to: now };
  const zoomBy = (factor: number) => {
    const middle = (view.from + view.to) / 2;
    const half = ((view.to - view.from) * factor) / 2;
    if (onZoom) onZoom(factor);
    else setRange(absolute({ from: middle - half, to: middle + half }), true);
  };
  const panBy = (share: number) => {
    const by = (view.to - view.from) * share;
    if (onPan) onPan(share);
    else setRange(absolute({ from: view.from + by, to: view.to + by }), true);
  };
  const take = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.target as HTMLFormElement);
    const from = Date.parse(String(form.get('from')));
    const to = Date.parse(String(form.get('to')));
    if (!(from < to)) {
      error.value = 'The end must be later than the beginning.';
      return;
    }
    error.value = '';
    custom.value = false;
    setRange(absolute({ from, to }), true);
  };
  // Relative ends become absolute, so that the link shows the same tomorrow.
  const share = () => {
    const [address] = location.href.split('#');
    const fixed = known ? absolute(resolved(range, Date.now())) : null;
    const link = `${address}#${withRange(route.peek(), fixed)}`;
    void navigator.clipboard?.writeText(link).then(() => notify('The link to this view is copied'));
  };
  return (
    <div class="rangebar">
      <div class="tabs" role="group" aria-label="Time range">
        {whole && (
          <button type="button" aria-pressed={same(fallback)} onClick={() => setRange(null, true)}>
            {whole}
          </button>
        )}
        {presets.map(([from, word]) => (
          <button
            type="button"
            aria-pressed={same({ from, to: 'now' })}
            onClick={() => setRange({ from, to: 'now' }, true)}
          >
            {word}
          </button>
        ))}
        <button
          type="button"
          aria-expanded={custom.value}
          onClick={() => {
            custom.value = !custom.value;
          }}
        >
          Custom
        </button>
      </div>
      <div class="tabs" role="group" aria-label="Move in time">
        <button type="button" aria-label="Earlier" title="Earlier" onClick={() => panBy(-0.5)}>
          ◂
        </button>
        <button type="button" aria-label="Later" title="Later" onClick={() => panBy(0.5)}>
          ▸
        </button>
        <button type="button" aria-label="Zoom out" title="Zoom out" onClick={() => zoomBy(2)}>
          −
        </button>
        <button type="button" aria-label="Zoom in" title="Zoom in" onClick={() => zoomBy(0.5)}>
          +
        </button>
      </div>
      <button type="button" class="quiet small" onClick={share}>
        Copy link
      </button>
      {custom.value && (
        <form class="inline" onSubmit={take}>
          <label>
            From <input name="from" type="datetime-local" required value={local(view.from)} />
          </label>
          <label>
            To <input name="to" type="datetime-local" required value={local(view.to)} />
          </label>
          <button>Show</button>
          {error.value && (
            <p role="alert" class="bad">
              {error.value}
            </p>
          )}
        </form>
      )}
    </div>
  );
}
