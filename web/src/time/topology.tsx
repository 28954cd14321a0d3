// A node drawn to scale: CPU sockets, the GPUs attached to each, and NVLink, each link as wide as
// what goes over it now. A GPU has the same size in every picture, so a node with two is smaller
// than one with eight.
import type { NodeInfo } from '../data/api';
import { conditionOf, linkWidth, shadeOf, type Condition } from '../data/card';
import { plural, rate } from '../data/format';
import { gpuTick, readings, traffic } from '../data/store';

const loadWord = (condition: Condition, util: number) =>
  condition === 'used' || condition === 'idle' ? (util < 0 ? '–' : `${util} %`) : condition;

export function Topology({ node }: { node: NodeInfo }) {
  gpuTick.value;
  const cards = readings.get(node.id) ?? [];
  const flows = traffic.get(node.id) ?? [];
  const flow = (index: number, kind: 'pcie' | 'nvlink') => flows[index]?.[kind] ?? 0;
  const sockets = [...new Set(node.gpus.map((g) => g.numa))].sort((a, b) => a - b);
  const domains = [...new Set(node.gpus.map((g) => g.nvlink_domain).filter((d) => d >= 0))];
  const step = 84; // per GPU, whatever the node
  // The last GPU's figure stands to the right of its link and needs more than half a step.
  const w = Math.max(1, node.gpus.length) * step + 64;
  const h = 144 + Math.max(1, domains.length) * 18;
  const order = [...node.gpus].sort((a, b) => a.numa - b.numa || a.index - b.index);
  const x = (i: number) => 10 + step * (i + 0.5);
  const indexes = (domain: number) =>
    node.gpus.filter((g) => g.nvlink_domain === domain).map((g) => g.index);
  const links = domains.map((d) => `GPUs ${indexes(d).join(', ')}`).join('; ');
  const words = [
    `${node.name}: ${plural(node.gpus.length, 'GPU')} on ${plural(sockets.length, 'socket')}`,
    links ? `NVLink joins ${links}` : 'no NVLink',
    ...node.gpus
      .filter((g) => flow(g.index, 'pcie') >= 1024 || flow(g.index, 'nvlink') >= 1024)
      .map(
        (g) =>
          `GPU ${g.index}: PCIe ${rate(flow(g.index, 'pcie'))}, ` +
          `NVLink ${rate(flow(g.index, 'nvlink'))}`,
      ),
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
              {at.map(([g, i]) => (
                <>
                  <line
                    class="pcie"
                    x1={x(i)}
                    y1="34"
                    x2={x(i)}
                    y2="66"
                    stroke-width={linkWidth(flow(g.index, 'pcie'))}
                  />
                  {flow(g.index, 'pcie') >= 1024 && (
                    <text class="small flow" x={x(i) + 5} y="52">
                      {rate(flow(g.index, 'pcie'))}
                    </text>
                  )}
                </>
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
              <rect class="gpu" data-l={level} x={x(i) - 34} y="66" width="68" height="46" rx="8" />
              <text class={`num l${level}`} x={x(i)} y="85">
                {g.index} · {loadWord(condition, r?.util ?? -1)}
              </text>
              <text class={`small l${level}`} x={x(i)} y="102">
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
          const y = 134 + k * 18;
          const sum = at.reduce((all, i) => all + Math.max(0, flow(order[i].index, 'nvlink')), 0);
          return (
            <g>
              {at.map((i) => (
                <line
                  class="nvlink"
                  x1={x(i)}
                  y1="112"
                  x2={x(i)}
                  y2={y}
                  stroke-width={linkWidth(flow(order[i].index, 'nvlink'))}
                />
              ))}
              <line class="nvlink thick" x1={x(at[0])} y1={y} x2={x(at[at.length - 1])} y2={y} />
              <text class="small" x={(x(at[0]) + x(at[at.length - 1])) / 2} y={y + 16}>
                NVLink{domains.length > 1 ? ` ${d}` : ''}
                {sum >= 1024 ? ` · ${rate(sum)}` : ''}
              </text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}
