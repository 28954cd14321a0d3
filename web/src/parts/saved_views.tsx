// Named views of the list of jobs, kept in this browser. A view is its address, so it can also be
// sent to somebody as a link.
import { signal, useSignal } from '@preact/signals';
import { remember, remembered } from '../data/memory';
import { route } from '../data/store';

const views = signal(remembered<Record<string, string>>('views', {}));
function save(next: Record<string, string>): void {
  views.value = next;
  remember('views', next);
}

export function SavedViews() {
  const naming = useSignal(false);
  const here = route.value;
  const list = Object.entries(views.value);
  const add = (event: Event) => {
    event.preventDefault();
    const name = String(new FormData(event.target as HTMLFormElement).get('name')).trim();
    if (name) save({ ...views.value, [name]: here });
    naming.value = false;
  };
  return (
    <div class="views" aria-label="Saved views" role="group">
      {list.map(([name, at]) => (
        <span class="view">
          <a href={`#${at}`} aria-current={at === here ? 'true' : undefined}>
            {name}
          </a>
          <button
            class="dismiss"
            aria-label={`Delete the view ${name}`}
            onClick={() => {
              const { [name]: _gone, ...rest } = views.value;
              save(rest);
            }}
          >
            ×
          </button>
        </span>
      ))}
      {naming.value ? (
        <form onSubmit={add}>
          <input
            name="name"
            aria-label="Name of the view"
            placeholder="Name of this view"
            maxLength={40}
            autocomplete="off"
            ref={(el) => el?.focus()}
          />
          <button class="quiet small">Save</button>
        </form>
      ) : (
        here.includes('?') &&
        !list.some(([, at]) => at === here) && (
          <button
            class="link"
            onClick={() => {
              naming.value = true;
            }}
          >
            Save this view
          </button>
        )
      )}
    </div>
  );
}
