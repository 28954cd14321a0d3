// Run forms kept under a name: by a project on the head, for all its members, or in this browser;
// and a link to a form for others.
import { useSignal, type Signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { call, get, has, problem, type Spec } from '../data/api';
import { remember, remembered } from '../data/memory';
import { may, mayActOn } from '../data/rights';
import { notify } from '../data/store';
import { options } from './run_options';
import { fieldsOf, type Fields } from './run_spec';

const plainFields = ['command', 'gpus', 'type', 'name', 'cwd', 'hours', 'spot', 'project'];
// What a link to the form may set.
export const shared = new Set([...plainFields, ...options.map((o) => o.flag)]);

interface Kept {
  name: string;
  project: string;
  set_by: string;
  spec?: Spec;
  trouble?: string;
}
interface Props {
  fields: Signal<Fields>;
  spec: Spec; // what the fields stand for
  wrong: boolean;
  project: string;
}

// The form as an address that others can open: every field that differs from an empty form.
function linkTo(fields: Fields): string {
  const given = Object.entries(fields).filter(([k, v]) => v && shared.has(k));
  return `${location.origin}/#/run?${new URLSearchParams(given).toString()}`;
}
// The user who saved it can change it, and users who control all jobs of its project.
const mayChange = (p: Kept) =>
  may('jobs.run', p.project) && mayActOn({ user: p.set_by, project: p.project });
const pathOf = (name: string, project: string) =>
  `/v1/presets/${encodeURIComponent(name)}?project=${encodeURIComponent(project)}`;

// The presets of the person's projects; null: this head keeps none.
function useShared(): { list: Kept[] | null; load: () => Promise<void> } {
  const list = useSignal<Kept[] | null>(null);
  const load = async () => {
    if (!(await has('/v1/presets'))) return;
    list.value = (await get<{ presets: Kept[] }>('/v1/presets')).presets;
  };
  useEffect(() => {
    void load().catch(() => {});
  }, []);
  return { list: list.value, load };
}

// What the form shows above its fields, where a preset is chosen, and below, where one is kept.
export function usePresets({ fields, spec, wrong, project }: Props) {
  const own = useSignal(remembered<Record<string, Fields>>('presets', {}));
  const chosen = useSignal('');
  const { list, load } = useShared();
  const nameNow = fields.value.name || (fields.value.command ?? '').slice(0, 30).trim();
  const keepOwn = (next: Record<string, Fields>) => {
    own.value = next;
    remember('presets', next);
  };
  // Changes presets of a project; what the head refuses is said.
  const onHead = (work: () => Promise<unknown>, said: () => void) =>
    void work()
      .then(load)
      .then(said)
      .catch((e) => notify(problem(e)));
  const ofProject = list?.find((p) => chosen.value === `project:${p.project}:${p.name}`);
  const ofBrowser = chosen.value.startsWith('own:') ? chosen.value.slice(4) : '';
  const choose = (value: string) => {
    chosen.value = value;
    const kept = list?.find((p) => value === `project:${p.project}:${p.name}`);
    if (kept?.spec) fields.value = { ...fieldsOf(kept.spec), project: kept.project };
    else if (kept) notify(`The preset ${kept.name} cannot be opened: ${kept.trouble}`);
    const mine = own.value[value.slice(4)];
    if (value.startsWith('own:') && mine) fields.value = { ...mine };
  };
  const undo = (text: string, run: () => void) =>
    notify(text, undefined, { label: 'Undo', ms: 8000, run });
  const remove = () => {
    chosen.value = '';
    if (ofProject?.spec) {
      const { name, project: of, spec: was } = ofProject;
      onHead(
        () => call('DELETE', pathOf(name, of)),
        () =>
          undo(`The preset ${name} of project ${of} was removed`, () =>
            onHead(
              () => call('PUT', pathOf(name, of), { spec: was }),
              () => {},
            ),
          ),
      );
      return;
    }
    const { [ofBrowser]: gone, ...others } = own.value;
    keepOwn(others);
    undo(`The preset ${ofBrowser} was removed`, () => keepOwn({ ...own.value, [ofBrowser]: gone }));
  };
  const projects = [...new Set((list ?? []).map((p) => p.project))];
  const names = Object.keys(own.value);
  const shares = list !== null && project !== '' && may('jobs.run', project);
  const choice = (names.length > 0 || projects.length > 0) && (
    <div class="inline presets">
      <label>
        Preset{' '}
        <select value={chosen.value} onChange={(e) => choose(e.currentTarget.value)}>
          <option value="">choose…</option>
          {projects.map((of) => (
            <optgroup label={`Project ${of}`}>
              {list!
                .filter((p) => p.project === of)
                .map((p) => (
                  <option value={`project:${of}:${p.name}`}>
                    {p.name} (by {p.set_by})
                  </option>
                ))}
            </optgroup>
          ))}
          {names.length > 0 && (
            <optgroup label="This browser">
              {names.map((n) => (
                <option value={`own:${n}`}>{n}</option>
              ))}
            </optgroup>
          )}
        </select>
      </label>
      {ofProject && <small class="dim">saved by {ofProject.set_by}</small>}
      {((ofBrowser && own.value[ofBrowser]) || (ofProject && mayChange(ofProject))) && (
        <button type="button" class="link" onClick={remove}>
          Remove the preset
        </button>
      )}
    </div>
  );
  const keep = (
    <div class="inline presets">
      {shares && (
        <button
          type="button"
          class="link"
          disabled={!fields.value.command || wrong}
          onClick={() =>
            onHead(
              () => call('PUT', pathOf(nameNow, project), { spec }),
              () => {
                chosen.value = `project:${project}:${nameNow}`;
                notify(`The preset ${nameNow} is kept for all members of project ${project}`);
              },
            )
          }
        >
          Share as a preset of {project}
        </button>
      )}
      <button
        type="button"
        class="link"
        disabled={!fields.value.command}
        onClick={() => {
          keepOwn({ ...own.value, [nameNow]: fields.value });
          chosen.value = `own:${nameNow}`;
          notify(`The preset ${nameNow} is kept in this browser`);
        }}
      >
        Keep as a preset
      </button>
      <button
        type="button"
        class="link"
        disabled={!fields.value.command}
        onClick={() => {
          void navigator.clipboard?.writeText(linkTo(fields.value)).then(() => {
            notify('Link copied: it opens this form with these values');
          });
        }}
      >
        Copy a link to this form
      </button>
    </div>
  );
  return { choice, keep };
}
