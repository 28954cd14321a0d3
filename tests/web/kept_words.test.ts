// Events about what projects keep name it, and a preset is not called a secret.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keptWords } from '../../web/src/admin/kept_words';

const said = (kind: string, event: Record<string, unknown>) =>
  keptWords(kind, event, (id) => (id === 4 ? 'vision' : `#${id}`))?.text;

test('what was set, added or removed is named', () => {
  assert.equal(
    said('secret_set', { secret: { project: 4, name: 'HF_TOKEN' } }),
    'secret HF_TOKEN of project vision was set',
  );
  assert.equal(
    said('secret_removed', { project: 4, name: 'HF_TOKEN' }),
    'secret HF_TOKEN of project vision was removed',
  );
  assert.equal(
    said('volume_declared', { volume: { name: 'datasets' } }),
    'volume datasets was added',
  );
  assert.equal(
    said('environment_saved', { environment: { project: 4, name: 'torch' } }),
    'environment torch of project vision was saved',
  );
  assert.equal(said('webhook_removed', { webhook: 1 }), 'webhook 1 was removed');
  assert.equal(said('head_started', {}), undefined);
});

test('a preset is a preset, whatever its name', () => {
  assert.equal(
    said('secret_set', { secret: { name: 'preset.4.train v1.2' } }),
    'preset train v1.2 of project vision was saved',
  );
  assert.equal(
    said('secret_removed', { name: 'preset.4.small' }),
    'preset small of project vision was removed',
  );
  assert.equal(
    said('secret_set', { secret: { project: 4, name: 'preset.4.x' } }),
    'secret preset.4.x of project vision was set',
  );
});
