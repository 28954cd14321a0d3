// A head with example jobs, and screenshots of every page: `BILLOW_SHOTS=DIR node demo.mjs
// [PAGE…]`.
import { billow, submit } from './support.mjs';

submit(
  '--gpus',
  3,
  '--name',
  'train-llama',
  '--',
  'sh',
  '-c',
  'i=0; while true; do i=$((i+1)); [ $((i % 30000)) = 0 ] && printf "\\033[32mstep\\033[0m %s loss \\033[1m0.%s\\033[0m\\n" $i $((i % 977)); done',
);
submit('--gpus', 1, '--name', 'notebook', '--', 'sleep', '3000');
submit(
  '--gpus',
  0.5,
  '--name',
  'embed',
  '--',
  'sh',
  '-c',
  'while true; do sleep 0.05; python3 -c "sum(range(2000000))"; done',
);
for (let i = 0; i < 3; i++)
  billow('wait', submit('--gpus', 1 + (i % 2), '--name', `eval-${i}`, '--', 'sleep', '1'));
submit('--gpus', 8, '--name', 'big-eval', '--', 'true');
await new Promise((r) => setTimeout(r, Number(process.env.DEMO_SECONDS || 25) * 1000));
await import('./look.mjs');
