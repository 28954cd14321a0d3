// The deploy form and the endpoint's page know every member of an endpoint's policy, and write it as
// `billow deploy` reads it.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import {
  changedPolicy,
  ownFields,
  policyOptions,
  policySettings,
  policyWords,
} from '../../web/src/endpoints/policy_options';

interface Schema {
  enum?: string[];
  properties?: Record<string, Schema>;
}
const root = process.env.BILLOW_ROOT!;
const api = JSON.parse(readFileSync(join(root, 'src/api/openapi.json'), 'utf8')) as {
  components: { schemas: Record<string, Schema> };
};
function leaves(schema: Schema, prefix = ''): [string, Schema][] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, inner]) =>
    inner.properties
      ? leaves(inner, `${prefix}${name}.`)
      : [[prefix + name, inner] as [string, Schema]],
  );
}
const known = leaves(api.components.schemas.EndpointPolicy);

test('every member of a policy has an option, or a field of its own', () => {
  const shown = [...policyOptions.map((o) => o.path), ...ownFields].sort();
  assert.deepEqual(shown, known.map(([path]) => path).sort());
});

test('choices are those of the API', () => {
  for (const [path, schema] of known) {
    const option = policyOptions.find((o) => o.path === path);
    if (option && schema.enum)
      assert.deepEqual([...option.choices!].sort(), [...schema.enum].sort(), path);
  }
});

test('every option is one of billow deploy', () => {
  const page = readFileSync(join(root, 'docs/cli.md'), 'utf8');
  const deploy = page.split('### billow deploy\n')[1].split('\n### ')[0];
  for (const { flag } of policyOptions)
    assert.ok(
      deploy.includes(`\`--${flag}`) || (flag === 'spot' && deploy.includes('#job-options')),
      `billow deploy has no --${flag}`,
    );
});

const typed: Record<string, [string, unknown, string]> = {
  concurrency: ['16', 16, '--concurrency 16'],
  idle_ns: ['5m', 300e9, '--idle 5m'],
  keep_suspended_ns: ['2h', 7200e9, '--keep suspended=2h'],
  wait_target_ns: ['1500ms', 1e9, '--slo 1500ms'],
  'scaling.min_at': [
    'Mon-Fri 08:00-18:00=2; Sat,Sun 10:00-12:00=1',
    ['Mon-Fri 08:00-18:00=2', 'Sat,Sun 10:00-12:00=1'],
    "--min-at 'Mon-Fri 08:00-18:00=2' --min-at 'Sat,Sun 10:00-12:00=1'",
  ],
  'scaling.spend_per_hour': ['$5/h', 5e9, '--max-spend 5/h'],
  'scaling.target_tokens': ['4000', 4000, '--target-tokens 4000'],
  'scaling.predict': ['on', true, '--predict on'],
  'scaling.query.url': ['http://prom:9090', 'http://prom:9090', '--prometheus http://prom:9090'],
  'scaling.query.query': ['sum(queue)', 'sum(queue)', "--query 'sum(queue)'"],
  'scaling.query.target': ['2.5', 2.5, '--query-target 2.5'],
  regions: ['eu, us', ['eu', 'us'], '--regions eu,us'],
  spot: ['on', true, '--spot'],
  base_on_demand: ['1', 1, '--base-on-demand 1'],
  'probes.live': ['/live', '/live', '--live /live'],
  'probes.start': ['/started', '/started', '--start-probe /started'],
  start_timeout_ns: ['20m', 1200e9, '--start-timeout 20m'],
  'probes.period_ns': ['10s', 10e9, '--health-period 10s'],
  'probes.timeout_ns': ['1s', 1e9, '--health-timeout 1s'],
  'probes.threshold': ['5', 5, '--health-threshold 5'],
  balance: ['least-latency', 'least-latency', '--balance least-latency'],
  sticky: ['header:X-User', 'header:X-User', '--sticky header:X-User'],
  timeout_ns: ['2m', 120e9, '--timeout 2m'],
  queue_max: ['50', 50, '--queue 50'],
  protocol: ['grpc', 'grpc', '--protocol grpc'],
  access: ['open', 'open', '--access open'],
  cors: [
    'https://a.example, https://b.example',
    ['https://a.example', 'https://b.example'],
    '--cors https://a.example --cors https://b.example',
  ],
  webhook: ['https://h.example/x', 'https://h.example/x', '--webhook https://h.example/x'],
  sample: ['1.5%', 15, '--sample 1.5%'],
  'rollout.strategy': ['recreate', 'recreate', '--strategy recreate'],
  'rollout.drain_ns': ['30s', 30e9, '--drain 30s'],
  'prices.request': ['0.01', 10_000_000, '--price 0.01/request'],
  'prices.million_tokens_in': ['0.5', 500_000_000, '--price in=0.5/Mtoken'],
  'prices.million_tokens_out': ['out=1.5/Mtoken', 1_500_000_000, '--price out=1.5/Mtoken'],
};

test('each option is read, shown and written as billow deploy takes it', () => {
  for (const { path } of policyOptions) {
    assert.ok(typed[path], `${path} is not tried`);
    const [text, value, words] = typed[path];
    const { policy, errors } = changedPolicy({}, { [path]: text });
    assert.deepEqual(errors, [], path);
    const at = path.split('.').reduce<unknown>((o, p) => (o as Record<string, unknown>)[p], policy);
    assert.deepEqual(at, value, path);
    assert.equal(policyWords(policy).join(' '), words);
    assert.equal(policySettings(policy).length, 1, path);
    assert.deepEqual(changedPolicy(policy, {}).policy, policy, 'untouched, it stays');
  }
});

test('an emptied field is the default again, a wrong one is refused', () => {
  const before = { probes: { live: '/live', threshold: 5 }, balance: 'pack', spot: true };
  const { policy } = changedPolicy(before, { 'probes.live': '', balance: '', spot: '' });
  assert.deepEqual(policy, { probes: { threshold: 5 } });
  for (const [path, text] of [
    ['scaling.min_at', 'always'],
    ['scaling.spend_per_hour', 'much'],
    ['sample', '200%'],
    ['probes.period_ns', '5'],
  ])
    assert.equal(changedPolicy({}, { [path]: text }).errors.length, 1, path);
});
