// The options of an endpoint: where each stands in its policy and how it is written. The help is
// that of `billow deploy`, shortened; tests/web compares the table with the API's description.
import type { Spec } from '../data/api';
import { priceOf, timeOf, timeText } from '../jobs/option_text';
import { setText, textOf, textsOf, type Kind, type Option } from '../jobs/options';
import { quoted } from '../jobs/run_command';

export type Policy = Record<string, unknown>;
// Options work on any request; a policy has no command.
const asSpec = (policy: Policy) => policy as Spec;

const dollars = (nano: number) => String(nano / 1e9);
// An amount that is written as "0.5/Mtoken" on the command line and may be typed as "0.5".
const amount = (before: string, after: string): Partial<Option> => ({
  kind: 'custom',
  read: (text) => {
    const bare = text.startsWith(before) ? text.slice(before.length) : text;
    return priceOf(bare.endsWith(after) ? bare.slice(0, -after.length) : bare);
  },
  write: (nano: number) => (nano ? `${before}${dollars(nano)}${after}` : ''),
});
const same = (text: string) => text;

const scale = 'Scaling',
  health = 'Health',
  traffic = 'Requests',
  release = 'New revisions',
  money = 'Prices';
type Row = [string, string, string, Kind, string, Partial<Option>?];
const rows: Row[] = [
  [scale, 'concurrency', 'concurrency', 'number', 'requests at once per replica (default 8)'],
  [scale, 'idle_ns', 'idle', 'time', 'time without requests until the last replica sleeps'],
  [
    scale,
    'keep_suspended_ns',
    'keep',
    'custom',
    'how long a sleeping replica is kept, e.g. 1h; 0s: it is stopped instead',
    {
      read: (text) => timeOf(text.replace(/^suspended=/, '')),
      write: (ns: number) => `suspended=${timeText(ns)}`,
    },
  ],
  [
    scale,
    'wait_target_ns',
    'slo',
    'custom',
    'target time to the first byte, e.g. 750ms',
    {
      read: (text) => {
        const ns = timeOf(text);
        return ns === undefined ? undefined : Math.floor(ns / 3) * 2;
      },
      write: (ns: number) => timeText(Math.floor(ns / 2) * 3),
    },
  ],
  [
    scale,
    'scaling.min_at',
    'min-at',
    'many',
    'replicas awake at certain times, UTC: Mon-Fri 08:00-18:00=2; several with ;',
    { between: ';', read: (text) => (/=\d+$/.test(text) ? text : undefined), write: same },
  ],
  [
    scale,
    'scaling.spend_per_hour',
    'max-spend',
    'custom',
    'limit of what awake replicas cost together, e.g. 5/h',
    amount('', '/h'),
  ],
  [scale, 'scaling.target_tokens', 'target-tokens', 'number', 'tokens in flight per replica'],
  [scale, 'scaling.query.url', 'prometheus', 'text', 'Prometheus server that --query is sent to'],
  [scale, 'scaling.query.query', 'query', 'text', 'PromQL: replicas awake by its value'],
  [
    scale,
    'scaling.query.target',
    'query-target',
    'custom',
    'value of --query that one replica is enough for',
    { read: (text) => (Number(text) > 0 ? Number(text) : undefined), write: String },
  ],
  [scale, 'regions', 'regions', 'list', 'replicas in each of these regions'],
  [scale, 'base_on_demand', 'base-on-demand', 'number', 'with --spot: replicas that are not spot'],
  [scale, 'spot', 'spot', 'switch', 'cheaper, but can be preempted'],
  [
    scale,
    'scaling.predict',
    'predict',
    'switch',
    'wake replicas before the load of earlier days returns',
    { fixed: 'on' },
  ],
  [health, 'probes.live', 'live', 'text', 'path that answers 2xx as long as a replica works'],
  [health, 'probes.start', 'start-probe', 'text', 'path that answers 2xx when it has started'],
  [health, 'start_timeout_ns', 'start-timeout', 'time', 'until a replica must be healthy'],
  [health, 'probes.period_ns', 'health-period', 'time', 'time between two checks (default 5s)'],
  [health, 'probes.timeout_ns', 'health-timeout', 'time', 'time limit of a check (default 5s)'],
  [
    health,
    'probes.threshold',
    'health-threshold',
    'number',
    'failed checks in a row that count (default 3)',
  ],
  [
    traffic,
    'balance',
    'balance',
    'choice',
    'which replica a request goes to',
    { choices: ['auto', 'spread', 'pack', 'least-latency', 'prefix'] },
  ],
  [
    traffic,
    'sticky',
    'sticky',
    'text',
    'which requests get the same replica: client, cookie, header:NAME or cookie:NAME',
  ],
  [traffic, 'timeout_ns', 'timeout', 'time', 'time limit to the first byte (default 60s)'],
  [traffic, 'queue_max', 'queue', 'number', 'requests that may wait (default 1000)'],
  [
    traffic,
    'protocol',
    'protocol',
    'choice',
    'what the command speaks',
    { choices: ['http1', 'h2', 'grpc'] },
  ],
  [
    traffic,
    'access',
    'access',
    'choice',
    'key (default): always a key; local: also its owner on the gateway’s machine; open: no key',
    { choices: ['key', 'local', 'open'] },
  ],
  [
    traffic,
    'cors',
    'cors',
    'many',
    'sites whose pages may call it: https://example.org; * for all',
    { read: same, write: same },
  ],
  [traffic, 'webhook', 'webhook', 'text', 'URL to notify when an asynchronous call has ended'],
  [
    traffic,
    'sample',
    'sample',
    'custom',
    'part of the requests that is kept with their bodies, e.g. 1%',
    {
      read: (text) => {
        const part = Number(text.replace(/\s*%$/, ''));
        return part >= 0 && part <= 100 ? Math.round(part * 10) : undefined;
      },
      write: (thousandths: number) => (thousandths ? `${thousandths / 10}%` : ''),
    },
  ],
  [
    release,
    'rollout.strategy',
    'strategy',
    'choice',
    'rolling: beside the old revision; recreate: after it has stopped; auto: as there is capacity',
    { choices: ['auto', 'rolling', 'recreate'] },
  ],
  [release, 'rollout.drain_ns', 'drain', 'time', 'how long old replicas may finish their requests'],
  [money, 'prices.request', 'price', 'custom', 'USD per request', amount('', '/request')],
  [
    money,
    'prices.million_tokens_in',
    'price',
    'custom',
    'USD per million tokens read',
    amount('in=', '/Mtoken'),
  ],
  [
    money,
    'prices.million_tokens_out',
    'price',
    'custom',
    'USD per million tokens written',
    amount('out=', '/Mtoken'),
  ],
];
export const policyOptions: Option[] = rows.map(([group, path, flag, kind, help, more]) => ({
  group,
  path,
  flag,
  kind,
  help,
  python: flag.replace(/-/g, '_'),
  ...more,
}));
// The form has fields of its own for these.
export const ownFields = ['min', 'max', 'health'];

export const policyText = (o: Option, policy: Policy) => textOf(o, asSpec(policy));

// The policy with the texts of the fields, by the options' paths; and what is wrong with them. What
// no field was typed for stays as it is.
export function changedPolicy(
  before: Policy,
  fields: Record<string, string>,
): { policy: Policy; errors: string[] } {
  const policy = structuredClone(before);
  const errors = policyOptions
    .filter((o) => fields[o.path] !== undefined)
    .map((o) => setText(o, asSpec(policy), fields[o.path]))
    .filter(Boolean);
  return { policy, errors };
}

// The words of `billow deploy` for a policy, without the form's own fields.
export const policyWords = (policy: Policy): string[] =>
  policyOptions.flatMap((o) => {
    const texts = textsOf(o, asSpec(policy));
    if (o.kind === 'switch' && texts.length && !o.fixed) return [`--${o.flag}`];
    return texts.flatMap((text) => [`--${o.flag}`, quoted(o.fixed ?? text)]);
  });

// What is not at its default, for the endpoint's page. The head leaves defaults out.
export const policySettings = (policy: Policy): { name: string; value: string; help: string }[] =>
  policyOptions.flatMap((o) => {
    const text = policyText(o, policy);
    if (!text) return [];
    return [
      { name: o.flag.replace(/-/g, ' '), value: o.kind === 'switch' ? '' : text, help: o.help },
    ];
  });
