// What the lists under More contain: the route, the columns, what can be done, and how to add one.
import type { ComponentChildren } from 'preact';
import { auditText, loadNames, type Said } from './activity';
import { ApiError, call, get, post } from '../data/api';
import {
  cents2,
  dateOf,
  gpus,
  isoDay,
  lasting,
  moment,
  month as monthOf,
  plural,
  usd,
} from '../data/format';
import type { Rates } from '../data/spend';
import { may, maySubmit, projects, projectsWhere, usualProject } from '../data/rights';
import { gpusOf, parseCommand } from '../jobs/run_command';

// A row has whatever its route answers.
export type Row = Record<string, any>;
export interface Field {
  name: string;
  label: string;
  kind?: 'text' | 'number' | 'password' | 'check' | 'choice' | 'long' | 'url' | 'datetime-local';
  required?: boolean;
  placeholder?: string;
  choices?: () => string[];
}
export interface Resource {
  title: string;
  lead: string;
  route: string;
  cli: string;
  how?: string; // what the command line does that this page cannot
  none?: [string, string]; // what an empty list says
  load: () => Promise<Row[]>;
  nameOf: (row: Row) => string;
  columns: [string, (row: Row) => ComponentChildren][];
  actions?: {
    name: string;
    ask?: (row: Row) => [string, string];
    may?: () => boolean;
    on?: (row: Row) => boolean; // whether a row has it
    run: (row: Row) => Promise<string>;
  }[];
  add?: {
    title: string;
    button: string;
    said: string;
    may: () => boolean;
    fields: Field[];
    run: (form: FormData) => Promise<string | void>; // what is shown only once
  };
}

const text = (form: FormData, name: string) => String(form.get(name) ?? '').trim();
const listOf = (form: FormData, name: string) =>
  text(form, name)
    .split(/[\s,]+/)
    .filter(Boolean);
const seg = encodeURIComponent;
const keepsSecrets = () => projectsWhere('secrets.set').length > 0;
const job = (id: unknown) => (id ? <a href={`#/jobs/${id}`}>job {String(id)}</a> : '–');
const projectField: Field = {
  name: 'project',
  label: 'Project',
  kind: 'choice',
  choices: () => projects.value.map((p) => p.name),
};
// The GPU types of the fleet for which no price is set.
function builtInPrices({ rates }: Rates): Row[] {
  const usdPerHour = (type: string, kind: string) => {
    const rate = rates.find((r) => r.gpu_type === type && r.class === kind)?.nano_usd_per_s;
    return rate ? (rate * 3600) / 1e9 : null;
  };
  return rates
    .filter((r) => r.built_in && r.class === 'on-demand')
    .map(({ gpu_type: type, prices_of }) => ({
      of: `gpu:${type}`,
      cost_usd_h: usdPerHour(type, 'on-demand'),
      charge_usd_h: usdPerHour(type, 'on-demand'),
      charge_spot_usd_h: usdPerHour(type, 'spot'),
      built_in: true,
      how: `built-in: median of published prices, newest ${dateOf(prices_of ?? '')}`,
    }));
}
const usdHour = (v: unknown) => (typeof v === 'number' ? `$${v.toFixed(2)} / h` : '–');
// GPUs of a form as resources, by the rules of the command line.
function gpusAsked(form: FormData): Record<string, unknown> {
  const { milli, error } = gpusOf(text(form, 'gpus'));
  if (error) throw new ApiError(0, error, '');
  return milli
    ? { gpus: Math.max(1, Math.floor(milli / 1000)), share: { milli: Math.min(1000, milli) } }
    : {};
}
const bytes = (n: number) =>
  n < 1 << 20
    ? `${Math.ceil(n / 1024)} KiB`
    : n < 2 ** 30
      ? `${(n / 2 ** 20).toFixed(0)} MiB`
      : `${(n / 2 ** 30).toFixed(1)} GiB`;

// A command and GPUs of a form as a specification.
export function simpleSpec(form: FormData): Record<string, unknown> {
  const command = parseCommand(text(form, 'command'));
  if (command.error) throw new ApiError(0, command.error, '');
  return { argv: command.argv, resources: gpusAsked(form) };
}

export const resources: Record<string, Resource> = {
  '/schedules': {
    title: 'Schedules',
    lead: 'Jobs that the head submits again and again.',
    route: '/v1/schedules',
    cli: 'billow schedule add nightly --cron "0 3 * * *" -- python report.py',
    load: async () => (await get<{ schedules: Row[] }>('/v1/schedules')).schedules,
    nameOf: (r) => r.name,
    columns: [
      ['Name', (r) => r.name],
      ['When (UTC)', (r) => <code>{r.cron}</code>],
      ['Next', (r) => moment(r.next_at)],
      ['Last', (r) => job(r.last_job)],
      ['Command', (r) => <code>{r.command}</code>],
      ['Project', (r) => r.project],
      ['User', (r) => r.user],
    ],
    actions: [
      {
        name: 'Delete',
        may: maySubmit,
        ask: (r) => [`Delete schedule ${r.name}?`, 'Jobs that it has submitted continue.'],
        run: (r) =>
          call('DELETE', `/v1/schedules/${seg(r.name)}`).then(() => `Schedule ${r.name} deleted`),
      },
    ],
    add: {
      title: 'Add a schedule',
      button: 'Add',
      said: 'The schedule was added',
      may: maySubmit,
      fields: [
        { name: 'name', label: 'Name', required: true },
        { name: 'cron', label: 'When (UTC)', required: true, placeholder: '0 3 * * * or @daily' },
        { name: 'command', label: 'Command', required: true },
        { name: 'gpus', label: 'GPUs', placeholder: '0' },
        projectField,
      ],
      run: async (f) => {
        await post('/v1/schedules', {
          name: text(f, 'name'),
          cron: text(f, 'cron'),
          spec: simpleSpec(f),
          project: text(f, 'project') || usualProject(),
        });
      },
    },
  },
  '/reservations': {
    title: 'Reservations',
    lead: 'GPUs that are set aside for a project for a fixed period, paid for whether used or not.',
    route: '/v1/reservations',
    cli: 'billow reserve --gpus 4 --from 18:00 --for 8h --name sweep',
    load: async () => (await get<{ reservations: Row[] }>('/v1/reservations')).reservations,
    nameOf: (r) => r.name || String(r.id),
    columns: [
      ['Number', (r) => r.id],
      ['Name', (r) => r.name],
      ['Project', (r) => r.project],
      ['GPUs', (r) => gpus(r.gpu_milli)],
      ['From', (r) => moment(r.from)],
      ['Until', (r) => moment(r.until)],
      ['Cost', (r) => r.cost],
      ['State', (r) => r.state],
    ],
    actions: [
      {
        name: 'Cancel',
        may: maySubmit,
        ask: (r) => [
          `Cancel reservation ${r.name || r.id}?`,
          'Jobs that run in it continue at the on-demand price.',
        ],
        run: (r) =>
          call('DELETE', `/v1/reservations/${r.id}`).then(() => 'The reservation was cancelled'),
      },
    ],
    add: {
      title: 'Reserve GPUs',
      button: 'Reserve',
      said: 'The GPUs are reserved',
      may: maySubmit,
      fields: [
        { name: 'name', label: 'Name', required: true },
        { name: 'gpus', label: 'GPUs', required: true, placeholder: '4' },
        { name: 'from', label: 'From (empty: now)', kind: 'datetime-local' },
        { name: 'hours', label: 'Hours', kind: 'number', required: true },
        projectField,
      ],
      run: async (f) => {
        const from = text(f, 'from') ? Date.parse(text(f, 'from')) : Date.now();
        const until = from + Number(text(f, 'hours')) * 3_600_000;
        await post('/v1/reservations', {
          name: text(f, 'name'),
          project: text(f, 'project') || usualProject(),
          resources: gpusAsked(f),
          ...(text(f, 'from') ? { from_ns: from * 1e6 } : {}),
          until_ns: Math.round(until) * 1e6,
        });
      },
    },
  },
  '/volumes': {
    title: 'Volumes',
    lead: 'Directories on nodes that jobs can mount.',
    route: '/v1/volumes',
    cli: 'billow volume create data /mnt/data',
    load: async () => (await get<{ volumes: Row[] }>('/v1/volumes')).volumes,
    nameOf: (r) => r.name,
    columns: [
      ['Name', (r) => r.name],
      ['Directory', (r) => <code>{r.path}</code>],
      [
        'Where',
        (r) =>
          [
            r.pool ? `pool ${r.pool}` : '',
            ...Object.entries(r.node_labels ?? {}).map(([k, v]) => `${k}=${v}`),
          ]
            .filter(Boolean)
            .join(', ') || 'all nodes',
      ],
      ['Projects', (r) => (r.projects ?? []).join(', ') || 'all'],
      ['Access', (r) => (r.read_only ? 'read only' : 'read and write')],
      ['Created', (r) => `${moment(r.at)} by ${r.by}`],
    ],
    actions: [
      {
        name: 'Delete',
        may: () => may('volumes.change'),
        ask: (r) => [`Delete volume ${r.name}?`, `The files in ${r.path} stay where they are.`],
        run: (r) =>
          call('DELETE', `/v1/volumes/${seg(r.name)}`).then(() => `Volume ${r.name} deleted`),
      },
    ],
    add: {
      title: 'Add a volume',
      button: 'Add',
      said: 'The volume was added',
      may: () => may('volumes.change'),
      fields: [
        { name: 'name', label: 'Name', required: true },
        { name: 'path', label: 'Directory', required: true, placeholder: '/mnt/data' },
        { name: 'projects', label: 'Projects', placeholder: 'all' },
        { name: 'read_only', label: 'read only', kind: 'check' },
      ],
      run: async (f) => {
        await post('/v1/volumes', {
          name: text(f, 'name'),
          path: text(f, 'path'),
          projects: listOf(f, 'projects'),
          read_only: f.get('read_only') === 'on',
        });
      },
    },
  },
  '/secrets': {
    title: 'Secrets',
    lead: 'Names of secrets; their values go to jobs only and are never shown.',
    route: '/v1/secrets',
    cli: 'billow secret set HF_TOKEN',
    load: async () => {
      const lists = await Promise.all(
        projects.value.map((p) =>
          get<{ secrets: Row[] }>(`/v1/secrets?project=${seg(p.name)}`).catch(() => ({
            secrets: [] as Row[],
          })),
        ),
      );
      return lists.flatMap((l) => l.secrets);
    },
    nameOf: (r) => r.name,
    columns: [
      ['Name', (r) => <code>{r.name}</code>],
      ['Project', (r) => r.project],
      ['Set', (r) => `${moment(r.set_at)} by ${r.set_by}`],
      ['Remark', (r) => r.trouble ?? ''],
    ],
    actions: [
      {
        name: 'Delete',
        may: keepsSecrets,
        ask: (r) => [`Delete secret ${r.name}?`, 'Jobs that ask for it do not start any more.'],
        run: (r) =>
          call('DELETE', `/v1/secrets/${seg(r.name)}?project=${seg(r.project)}`).then(
            () => `Secret ${r.name} deleted`,
          ),
      },
    ],
    add: {
      title: 'Set a secret',
      button: 'Set',
      said: 'The secret was set',
      may: keepsSecrets,
      fields: [
        { name: 'name', label: 'Name', required: true, placeholder: 'HF_TOKEN' },
        { name: 'value', label: 'Value', kind: 'password', required: true },
        {
          name: 'project',
          label: 'Project',
          kind: 'choice',
          choices: () => projectsWhere('secrets.set'),
        },
      ],
      run: async (f) => {
        await call(
          'PUT',
          `/v1/secrets/${seg(text(f, 'name'))}?project=${seg(text(f, 'project'))}`,
          { value: String(f.get('value')) },
        );
      },
    },
  },
  '/environments': {
    title: 'Environments',
    lead: 'Saved environments that jobs can run in.',
    route: '/v1/environments',
    cli: 'billow env save torch ./venv',
    how: 'Save another from the machine that has it:',
    load: async () => (await get<{ environments: Row[] }>('/v1/environments')).environments,
    nameOf: (r) => r.name,
    columns: [
      ['Name', (r) => r.name],
      ['Project', (r) => `${r.project}${r.published ? ', published' : r.shared ? ', shared' : ''}`],
      ['Size', (r) => `${bytes(r.bytes)}, ${bytes(r.stored_bytes)} stored`],
      ['Mounted at', (r) => <code>{r.path}</code>],
      ['Saved', (r) => `${moment(r.at)}${r.by ? ` by ${r.by}` : ''}`],
      ['In use', (r) => (r.jobs ? plural(r.jobs, 'job') : '–')],
    ],
    actions: [
      {
        name: 'Delete',
        may: maySubmit,
        ask: (r) => [`Delete environment ${r.name}?`, 'Jobs that run in it continue.'],
        run: (r) =>
          call('DELETE', `/v1/environments/${seg(r.name)}`).then(
            () => `Environment ${r.name} deleted`,
          ),
      },
    ],
  },
  '/webhooks': {
    title: 'Webhooks',
    lead: 'Addresses that the head sends notices to: chat, mail gateways, your own programs.',
    route: '/v1/webhooks',
    cli: 'billow webhook add https://example.org/hook',
    load: async () => (await get<{ webhooks: Row[] }>('/v1/webhooks')).webhooks,
    nameOf: (r) => String(r.id),
    columns: [
      ['Number', (r) => r.id],
      ['Address', (r) => r.url],
      ['Notices', (r) => (r.kinds ?? []).join(', ') || 'all'],
      ['Not delivered yet', (r) => r.waiting ?? 0],
    ],
    actions: [
      {
        name: 'Test',
        may: () => may('prices.set'),
        run: (r) => post(`/v1/webhooks/${r.id}/test`).then(() => 'A test notice was sent'),
      },
      {
        name: 'Delete',
        may: () => may('prices.set'),
        ask: (r) => [`Delete webhook ${r.id}?`, `${r.url} gets no more notices.`],
        run: (r) => call('DELETE', `/v1/webhooks/${r.id}`).then(() => 'The webhook was deleted'),
      },
    ],
    add: {
      title: 'Add a webhook',
      button: 'Add',
      said: 'The webhook was added',
      may: () => may('prices.set'),
      fields: [
        {
          name: 'url',
          label: 'Address',
          kind: 'url',
          required: true,
          placeholder: 'https://example.org/hook',
        },
        { name: 'kinds', label: 'Notices', placeholder: 'all' },
      ],
      run: async (f) =>
        (
          await post<{ secret: string }>('/v1/webhooks', {
            url: text(f, 'url'),
            kinds: listOf(f, 'kinds'),
          })
        ).secret,
    },
  },
  '/prices': {
    title: 'Prices',
    lead: 'What GPUs cost, and what jobs are charged for them. Built-in prices apply until you set your own.',
    route: '/v1/prices',
    cli: 'billow price set gpu:H100 --charge 2.50',
    none: [
      'No price was set',
      'Jobs are charged the built-in price of their GPU type, which the run form shows. To set one:',
    ],
    load: async () => [
      ...(await get<{ prices: Row[] }>('/v1/prices')).prices,
      ...builtInPrices(await get<Rates>('/v1/prices/rates')),
    ],
    nameOf: (r) => r.of,
    columns: [
      ['Of', (r) => r.of],
      ['Cost per GPU', (r) => usdHour(r.cost_usd_h)],
      ['Charge', (r) => usdHour(r.charge_usd_h)],
      ['Charge, spot', (r) => usdHour(r.charge_spot_usd_h)],
      ['Source', (r) => r.how || 'set here'],
    ],
    actions: [
      {
        name: 'Delete',
        may: () => may('prices.set'),
        on: (r) => !r.built_in,
        ask: (r) => [`Delete the price of ${r.of}?`, 'The next more general price applies.'],
        run: (r) =>
          call('DELETE', `/v1/prices/${seg(r.of)}`).then(() => `The price of ${r.of} was deleted`),
      },
    ],
    add: {
      title: 'Set a price',
      button: 'Set',
      said: 'The price was set',
      may: () => may('prices.set'),
      fields: [
        { name: 'of', label: 'Of', required: true, placeholder: 'gpu:H100' },
        { name: 'charge', label: 'Charge in $ per GPU hour', kind: 'number', required: true },
        { name: 'spot', label: 'Spot in $ per GPU hour', kind: 'number' },
      ],
      run: async (f) => {
        const nano = (name: string) => Math.round((Number(text(f, name)) * 1e9) / 3600);
        await call('PUT', '/v1/prices', {
          of: text(f, 'of'),
          charge: nano('charge'),
          ...(text(f, 'spot') ? { charge_spot: nano('spot') } : {}),
        });
      },
    },
  },
  '/invoices': {
    title: 'Invoices',
    lead: 'What each project owes for this month so far.',
    route: '/v1/invoices',
    cli: 'billow invoice --project default --month YYYY-MM',
    how: 'Earlier months, and an invoice as a file:',
    load: async () => {
      const month = isoDay(Date.now()).slice(0, 7);
      const all = await Promise.all(
        projects.value.map((p) =>
          get<Row>(`/v1/invoices?project=${seg(p.name)}&month=${month}`).catch(() => null),
        ),
      );
      return all.filter((i): i is Row => !!i);
    },
    nameOf: (r) => r.number,
    columns: [
      ['Number', (r) => r.number],
      ['Project', (r) => r.project],
      ['Month', (r) => `${monthOf(r.month)}${r.final ? '' : ', so far'}`],
      ['GPU hours', (r) => (r.total?.gpu_hours ?? 0).toFixed(1)],
      ['Of that idle', (r) => cents2(r.total?.idle_nano_usd ?? 0)],
      ['Charged', (r) => <b>{usd(r.total?.charge_nano_usd ?? 0)}</b>],
    ],
  },
  '/pools': {
    title: 'Pools and clouds',
    lead: 'Where machines can be rented or started, and what the provider answered.',
    route: '/v1/pools',
    cli: 'billow pool add --help',
    none: ['No pool', 'Only machines that joined by themselves run jobs. To add a pool:'],
    load: async () => (await get<{ pools: Row[] }>('/v1/pools')).pools,
    nameOf: (r) => r.name,
    columns: [
      ['Name', (r) => r.name],
      ['Kind', (r) => `${r.kind}${r.cloud ? `, ${r.cloud}` : ''}${r.spot ? ', spot' : ''}`],
      [
        'Machines',
        (r) => `${(r.machines ?? []).length}, at least ${r.min ?? 0}, at most ${r.max ?? 0}`,
      ],
      ['GPUs', (r) => (r.gpu_type ? `${r.gpus} × ${r.gpu_type}` : plural(r.offers ?? 0, 'offer'))],
      ['Price', (r) => usdHour(r.price_usd_per_h)],
      ['Released when idle', (r) => (r.idle_s ? `after ${lasting(r.idle_s)}` : 'never')],
      ['Refused', (r) => r.denied ?? (r.removing ? 'being removed' : '')],
    ],
    actions: [
      {
        name: 'Check',
        may: () => may('pools.change'),
        run: (r) =>
          post<{ ok?: boolean; text?: string }>(`/v1/pools/${seg(r.name)}/check`).then(
            (d) => d.text ?? `Pool ${r.name} answers`,
          ),
      },
      {
        name: 'Ask again',
        may: () => may('pools.change'),
        run: (r) =>
          post(`/v1/pools/${seg(r.name)}/retry`).then(() => `Pool ${r.name} is asked again`),
      },
    ],
  },
  '/audit': {
    title: 'Audit',
    lead: 'The last changes that people and programs made, newest first. Admins only.',
    route: '/v1/events',
    cli: 'billow events -f',
    load: async () => {
      const { seq } = await get<{ seq: number }>('/v1/status');
      const from = Math.max(0, seq - 500);
      const names = await loadNames();
      return (await get<{ events: Row[] }>(`/v1/events?after=${from}&limit=500`)).events
        .filter((e) => /^user:/.test(e.actor) && e.kind !== 'environment_stored')
        .reverse()
        .slice(0, 200)
        .map((e) => ({ ...e, said: auditText(e as Said & Row, names) }));
    },
    nameOf: (r) => String(r.seq),
    columns: [
      ['When', (r) => moment(r.at)],
      ['Who', (r) => String(r.actor).replace(/^user:/, '')],
      ['What', (r) => <span>{r.said}</span>],
      ['Event', (r) => <span title={r.kind}>{r.seq}</span>],
    ],
  },
};
