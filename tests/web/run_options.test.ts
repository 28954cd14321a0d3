// The run form has a field for every option of a job, and writes the same job on the command line,
// in Python and in a job file. run_forms.json holds each option in these forms; the command line,
// the job files and the Python package are tested with the same file (tests/unit/client/
// run_forms_test.cpp, tests/sdk/run_forms_test.py). Write it again: node run.mjs --write, then format it
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import type { Spec } from '../../web/src/data/api';
import { askedFor } from '../../web/src/jobs/asked';
import { fieldsOf, specOf } from '../../web/src/jobs/run_spec';
import { asCli, asPython, asToml } from '../../web/src/jobs/run_forms';
import { alsoKept, at, elsewhere, members, options } from '../../web/src/jobs/run_options';

interface Form {
  fields: Record<string, string>; // as typed, besides the command
  spec: Spec;
  cli: string;
  python: string;
  toml: string;
}
const file = process.env.BILLOW_RUN_FORMS!;
const forms = JSON.parse(readFileSync(file, 'utf8')) as Record<string, Form>;

const usual = { command: 'python train.py', cwd: '/tmp', gpus: '' };
function formOf(fields: Record<string, string>): Form {
  const { spec, errors } = specOf({ ...usual, ...fields }, null);
  assert.deepEqual(errors, [], JSON.stringify(fields));
  return {
    fields,
    spec: JSON.parse(JSON.stringify(spec)) as Spec,
    cli: asCli(spec, ''),
    python: asPython(spec, ''),
    toml: asToml(spec, ''),
  };
}

if (process.env.BILLOW_WRITE_FORMS) {
  for (const path of Object.keys(forms)) forms[path] = formOf(forms[path].fields);
  writeFileSync(file, `${JSON.stringify(forms, null, 2)}\n`);
}

test('every member of a request has a field, or a reason why it has none', () => {
  const shown = new Set(options.map((o) => o.path));
  for (const path of members().keys())
    assert.ok(
      shown.has(path) !== path in elsewhere,
      `${path} must be shown or explained, not both`,
    );
  for (const path of Object.keys(elsewhere))
    assert.ok(members().has(path), `${path} is explained but does not exist`);
  assert.equal(new Set(options.map((o) => o.flag)).size, options.length, 'flags are unique');
});

test('every option has its group and its help', () => {
  for (const o of options) {
    assert.notEqual(o.group, 'Other options', `${o.path} has no line in the table of run_options`);
    assert.ok(o.help, `${o.path} has no help`);
    assert.doesNotMatch(o.help, /^As --/, o.path);
  }
});

test('every option is written in all forms as run_forms.json has it', () => {
  for (const o of options)
    assert.ok(forms[o.path], `${o.path} is not in run_forms.json: add its fields, then --write`);
  for (const [path, form] of Object.entries(forms)) {
    assert.deepEqual(formOf(form.fields), form, path);
    if (path !== 'all') assert.notEqual(at(form.spec, path), undefined, `${path} was not set`);
  }
});

test('a job that is changed keeps its request exactly', () => {
  for (const [path, form] of Object.entries(forms)) {
    const base = { ...form.spec };
    delete base.after; // the jobs that it waited for belong to its first run
    const { spec, errors } = specOf(fieldsOf(form.spec), form.spec);
    assert.deepEqual(errors, [], path);
    assert.deepEqual(JSON.parse(JSON.stringify(spec)), base, path);
  }
});

test('a job that is changed keeps what the form cannot show', () => {
  const base: Spec = {
    argv: ['python', 'train.py'],
    time_limit_ns: 1_234_567_890_123,
    pty: true,
    rows: 50,
    resources: { gpus: 1, share: { milli: 0, mem_mib: 20_480 } },
    surroundings: { refused_calls: ['ptrace'], environment_digest: '5eed' },
    place: { zones: ['a'], moons: 2 },
    roles: [{ name: 'a', argv: ['x'] }],
    stop_grace_ns: 1_500_000_001,
    warp_factor: 9,
  };
  assert.deepEqual(specOf(fieldsOf(base), base).spec, base);
  const changed = specOf({ ...fieldsOf(base), zone: 'b' }, base).spec;
  assert.deepEqual(changed, { ...base, place: { zones: ['b'], moons: 2 } });
  const said = alsoKept(base).join(' ');
  for (const each of ['--zone a', 'ptrace', 'warp_factor 9', 'moons 2', 'roles'])
    assert.ok(said.includes(each), `${each} is not said to be kept: ${said}`);
});

// The page has its own lines for what `elsewhere` and the first fields of the form hold.
test('the page of a job shows every option that was set', () => {
  const onPage = ['labels', 'nodes', 'resources.mig_profile'];
  for (const [path, form] of Object.entries(forms)) {
    if (path === 'all' || onPage.includes(path)) continue;
    const said = askedFor(form.spec).map(({ name, value }) => `${name} ${value}`);
    const name = options.find((o) => o.path === path)!.flag.replace(/-/g, ' ');
    assert.ok(
      said.some((each) => each.startsWith(`${name} `)),
      `${path}: ${said.join('; ')}`,
    );
  }
  assert.deepEqual(askedFor({ argv: ['true'], cwd: '/tmp', spot: true }), []);
});

test('a wrong value is refused with a hint', () => {
  const wrong: [string, string][] = [
    ['mem', '32'],
    ['mem', '32Gx'],
    ['stop-grace', '90'],
    ['stop-grace', '90mm'],
    ['nodes', '1.5'],
    ['array', '9-0'],
    ['topology', 'moon'],
    ['topology', 'rack:perhaps'],
    ['checkpoint-signal', 'USR9'],
    ['max-price', '-1'],
    ['volume', 'data'],
    ['secret', 'TOKEN=hunter2'],
    ['label', 'team'],
    ['after', 'twelve'],
  ];
  for (const [flag, text] of wrong) {
    const { errors } = specOf({ ...usual, [flag]: text }, null);
    assert.equal(errors.length, 1, `--${flag} ${text}`);
    assert.match(errors[0], new RegExp(`^--${flag}: “`));
  }
});
