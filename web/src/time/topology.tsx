// A node drawn to scale: CPU sockets, the GPUs attached to each, and NVLink. A GPU has the same size
// in every picture, so a node with two is smaller than one with eight.
import type { NodeInfo } from '../data/api';
import { conditionOf, shadeOf, type Condition } from '../data/card';
import { plural } from '../data/format';
import { gpuTick, readings } from '../data/store';

const loadWord = (condition: Condition, util: number) =>
  condition === 'used' || condition === 'idle' ? (util < 0 ? '–' : `${util} %`) : condition;

export function Topology({ node }: { node: NodeInfo }) {
  gpuTick.value;
  const cards = readings.get(node.id) ?? [];
  const sockets = [...new Set(node.gpus.map((g) => g.numa))].sort((a, b) => a - b);
  const domains = [...new Set(node.gpus.map((g) => g.nvlink_domain).filter((d) => d >= 0))];
  const step = 84; // per GPU, whatever the node
  const w = Math.max(1, node.gpus.length) * step + 20;
  const h = 128 + Math.max(1, domains.length) * 18;
  const order = [...node.gpus].sort((a, b) => a.numa - b.numa || a.index - b.index);
  const x = (i: number) => 10 + step * (i + 0.5);
  const indexes = (domain: number) =>
    node.gpus.filter((g) => g.nvlink_domain === domain).map((g) => g.index);
  const links = domains.map((d) => `GPUs ${indexes(d).join(', ')}`).join('; ');
  const words = [
    `${node.name}: ${plural(node.gpus.length, 'GPU')} on ${plural(sockets.length, 'socket')}`,
    links ? `NVLink joins ${links}` : 'no NVLink',
  ].join('; ');
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Topology">
      <svg
        class="topology scaled"
        viewBox={`0 0 ${w} ${h}`}
        width={w}
        height={h}
        role="img"
        aria-label={words}
      >
        {sockets.map((numa) => {
          const at = order.map((g, i) => [g, i] as const).filter(([g]) => g.numa === numa);
          const left = x(at[0][1]) - step / 2 + 6,
            right = x(at[at.length - 1][1]) + step / 2 - 6;
          return (
            <g>
              <rect class="socket" x={left} y="8" width={right - left} height="26" rx="6" />
              <text x={(left + right) / 2} y="25">
                {numa < 0 ? 'CPU' : at.length === 1 ? `socket ${numa}` : `CPU socket ${numa}`}
              </text>
              {at.map(([, i]) => (
                <line class="pcie" x1={x(i)} y1="34" x2={x(i)} y2="58" />
              ))}
            </g>
          );
        })}
        {order.map((g, i) => {
          const r = cards[g.index];
          const condition = conditionOf(node, g, r);
          const level = shadeOf(condition, r?.util ?? -1);
          return (
            <g>
              <rect class="gpu" data-l={level} x={x(i) - 34} y="58" width="68" height="46" rx="8" />
              <text class={`num l${level}`} x={x(i)} y="77">
                {g.index} · {loadWord(condition, r?.util ?? -1)}
              </text>
              <text class={`small l${level}`} x={x(i)} y="94">
                {g.type}
              </text>
            </g>
          );
        })}
        {domains.map((d, k) => {
          const at = order
            .map((g, i) => [g, i] as const)
            .filter(([g]) => g.nvlink_domain === d)
            .map(([, i]) => i);
          const y = 118 + k * 18;
          return (
            <g>
              {at.map((i) => (
                <line class="nvlink" x1={x(i)} y1="104" x2={x(i)} y2={y} />
              ))}
              <line class="nvlink thick" x1={x(at[0])} y1={y} x2={x(at[at.length - 1])} y2={y} />
              <text class="small" x={(x(at[0]) + x(at[at.length - 1])) / 2} y={y + 16}>
                NVLink{domains.length > 1 ? ` ${d}` : ''}
              </text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}
