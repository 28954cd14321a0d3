// Pages for lists that are looked at now and then: schedules, volumes, secrets and the like. Each is
// a table with what can be done to a row, and a form that adds one (resources.tsx).
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { has, problem } from '../data/api';
import { others } from '../frame/pages';
import { resources, type Field, type Resource, type Row } from './resources';
import { confirm, Empty, Line, rows as shape } from '../parts/ui';
import { notify } from '../data/store';

export function More() {
  return (
    <section>
      <h1>More</h1>
      <div class="cards">
        {others
          .filter((o) => o.under === '/more')
          .map((o) => (
            <a class="card" href={`#${o.path}`} data-row>
              <h2 class="strong">{o.name}</h2>
              <p class="note">
                {resources[o.path]?.lead ??
                  'Which notifications you get, and where: mail, Slack, Discord, ntfy, this browser.'}
              </p>
            </a>
          ))}
      </div>
    </section>
  );
}

function Input({ field }: { field: Field }) {
  if (field.kind === 'check')
    return (
      <label class="check">
        <input name={field.name} type="checkbox" /> {field.label}
      </label>
    );
  return (
    <label>
      {field.label}{' '}
      {field.kind === 'choice' ? (
        <select name={field.name}>
          {field.choices!().map((c) => (
            <option>{c}</option>
          ))}
        </select>
      ) : field.kind === 'long' ? (
        <textarea name={field.name} rows={3} required={field.required} spellcheck={false} />
      ) : (
        <input
          name={field.name}
          type={field.kind ?? 'text'}
          required={field.required}
          placeholder={field.placeholder}
          autocomplete="off"
          spellcheck={false}
        />
      )}
    </label>
  );
}

// On a phone each row is a card; on a tablet only where the columns are too many for its width.
const fewColumns = 5;

// A name, number or time stays on one line; the table scrolls instead.
const isShort = (content: unknown) =>
  typeof content !== 'object' && String(content ?? '').length <= 36;

function Table({ of, rows, changed }: { of: Resource; rows: Row[]; changed: () => void }) {
  const act = (row: Row, action: NonNullable<Resource['actions']>[number]) => {
    const run = () => {
      action.run(row).then(
        (said) => {
          notify(said);
          changed();
        },
        (e) => notify(problem(e)),
      );
    };
    if (action.ask) confirm(...action.ask(row), action.name, run);
    else run();
  };
  const actions = (of.actions ?? []).filter((a) => !a.may || a.may());
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={of.title}>
      {/* Roles: on narrow screens rows are drawn as cards, which would end the table's semantics. */}
      <table class={of.columns.length <= fewColumns ? shape.value : 'stacks'} role="table">
        <thead role="rowgroup">
          <tr role="row">
            {of.columns.map(([name]) => (
              <th role="columnheader">{name}</th>
            ))}
            {actions.length > 0 && (
              <th role="columnheader">
                <span class="sr">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr role="row">
              {of.columns.map(([name, cell]) => {
                const content = cell(row);
                return (
                  <td role="cell" data-name={name} class={isShort(content) ? '' : 'wrap any'}>
                    {content}
                  </td>
                );
              })}
              {actions.length > 0 && (
                <td role="cell" class="right">
                  {actions
                    .filter((a) => !a.on || a.on(row))
                    .map((a) => (
                      <button
                        class="quiet small"
                        aria-label={`${a.name} ${of.nameOf(row)}`}
                        onClick={() => act(row, a)}
                      >
                        {a.name}
                      </button>
                    ))}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function ResourcePage({ path }: { path: string }) {
  const of = resources[path];
  const rows = useSignal<Row[] | null>(null);
  const missing = useSignal(false);
  const error = useSignal('');
  const once = useSignal(''); // a secret that is shown only now
  const load = async () => {
    try {
      missing.value = !(await has(of.route));
      rows.value = missing.value ? [] : await of.load();
      error.value = '';
    } catch (e) {
      error.value = problem(e);
      rows.value ??= [];
    }
  };
  useEffect(() => {
    void load();
  }, [path]);
  const submit = async (event: Event) => {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    try {
      once.value = (await of.add!.run(new FormData(form))) ?? '';
      error.value = '';
      form.reset();
      notify(of.add!.said);
      await load();
    } catch (e) {
      error.value = problem(e);
    }
  };
  const mayAdd = of.add && !missing.value && of.add.may();
  return (
    <section>
      <p class="crumbs">
        <a href="#/more">More</a> / {of.title}
      </p>
      <h1>{of.title}</h1>
      <p class="lead">{of.lead}</p>
      {error.value && (
        <p role="alert" class="bad">
          {error.value}
        </p>
      )}
      {!rows.value ? (
        <p class="note">Loading…</p>
      ) : rows.value.length ? (
        <>
          <Table of={of} rows={rows.value} changed={() => void load()} />
          {!of.add && of.how && (
            <div class="gap">
              <p class="note">{of.how}</p>
              <Line text={of.cli} />
            </div>
          )}
        </>
      ) : (
        !error.value && (
          <Empty title={of.none?.[0] ?? `No ${of.title.toLowerCase()}`}>
            <p>
              {missing.value
                ? 'This head does not have them.'
                : (of.none?.[1] ?? 'On the command line:')}
            </p>
            {!missing.value && <Line text={of.cli} />}
          </Empty>
        )
      )}
      {mayAdd && (
        <form class="inline add" onSubmit={submit} aria-label={of.add!.title}>
          <h2>{of.add!.title}</h2>
          {of.add!.fields.map((field) => (
            <Input field={field} />
          ))}
          <button>{of.add!.button}</button>
        </form>
      )}
      {once.value && (
        <p class="secret" role="status">
          Copy it now, it is not shown again: <code>{once.value}</code>
        </p>
      )}
    </section>
  );
}
