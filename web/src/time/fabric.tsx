// Racks and switches with their nodes, to scale, and what goes over the links now: a line is as wide
// as the traffic of its node, and a node as wide as its GPUs. Labels of nodes (rack, switch) say
// where they are. Beyond `nodesMax` nodes only racks are drawn, since no line could be told apart.
import { useMemo } from 'preact/hooks';
import { conditionOf, linkWidth, shadeOf } from '../data/card';
import { plural, rate } from '../data/format';
import { gpuTick, hosts, nodes, nodesTick, readings, traffic } from '../data/store';
import type { NodeInfo } from '../data/api';
import { networkOf, nvlinkOf, racksOf, sumOf, type Rack, type Switch } from './racks';

const nodesMax = 400;
const cellsMax = 16; // GPUs drawn one by one; a larger node is one box with its mean load
const cell = 11;
const gap = 3;
const pad = 6;

const said = (kib: number) => (kib < 0 ? 'unknown' : kib < 1024 ? 'silent' : rate(kib));
const columnsOf = (count: number) => Math.max(4, Math.min(8, count));
const widthOf = (n: NodeInfo) => columnsOf(n.gpus.length) * (cell + gap) - gap + 2 * pad;

function Cells({ node, x, y }: { node: NodeInfo; x: number; y: number }) {
  const cards = readings.get(node.id) ?? [];
  const shade = (i: number) =>
    shadeOf(conditionOf(node, node.gpus[i], cards[i]), cards[i]?.util ?? -1);
  if (node.gpus.length > cellsMax) {
    const busy = cards.filter((c) => c.milli && c.util >= 0);
    const mean = busy.reduce((sum, c) => sum + c.util, 0) / Math.max(1, cards.length);
    const level = node.state !== 'ready' ? shade(0) : busy.length ? shadeOf('used', mean) : 'f';
    return (
      <rect class="gpu" data-l={level} x={x} y={y} width={8 * (cell + gap) - gap} height="25" />
    );
  }
  const columns = columnsOf(node.gpus.length);
  return (
    <>
      {node.gpus.map((_card, i) => (
        <rect
          class="gpu"
          data-l={shade(i)}
          x={x + (i % columns) * (cell + gap)}
          y={y + Math.floor(i / columns) * (cell + gap)}
          width={cell}
          height={cell}
          rx="2"
        />
      ))}
    </>
  );
}

function NodeBox({ node, x }: { node: NodeInfo; x: number }) {
  const w = widthOf(node);
  const net = networkOf(hosts.get(node.id));
  const nvlink = nvlinkOf(traffic.get(node.id));
  const words =
    `${node.name}: ${plural(node.gpus.length, 'GPU')}, network ${said(net)}` +
    (nvlink >= 1024 ? `, NVLink ${said(nvlink)}` : '');
  return (
    <a href={`#/nodes/${encodeURIComponent(node.name)}`} aria-label={words}>
      <title>{words}</title>
      <line
        class="net"
        x1={x + w / 2}
        y1="22"
        x2={x + w / 2}
        y2="46"
        stroke-width={linkWidth(net)}
      />
      {net >= 1024 && (
        <text class="small flow" x={x + w / 2 + 6} y="37">
          {rate(net)}
        </text>
      )}
      <rect class="socket" x={x} y="46" width={w} height="58" rx="6" />
      <Cells node={node} x={x + pad} y={52} />
      <line
        class="nvlink"
        x1={x + pad}
        y1="84"
        x2={x + w - pad}
        y2="84"
        stroke-width={linkWidth(nvlink)}
      />
      <text class="small" x={x + w / 2} y="99">
        {node.name.length * 6 > w ? `${node.name.slice(0, Math.floor(w / 6) - 1)}…` : node.name}
      </text>
    </a>
  );
}

function SwitchPicture({ at }: { at: Switch }) {
  const lefts: number[] = [];
  let x = 2;
  for (const node of at.nodes) {
    lefts.push(x);
    x += Math.max(widthOf(node), 90) + 12;
  }
  const net = sumOf(at.nodes.map((n) => networkOf(hosts.get(n.id))));
  return (
    <svg class="topology scaled" viewBox={`0 0 ${x} 108`} width={x} height="108">
      <line class="net switch" x1="4" y1="20" x2={x - 14} y2="20" />
      <text class="small flow" x="4" y="12">
        {[at.name && `switch ${at.name}`, net < 0 ? '' : said(net)].filter(Boolean).join(' · ')}
      </text>
      {at.nodes.map((node, i) => (
        <NodeBox key={node.id} node={node} x={lefts[i]} />
      ))}
    </svg>
  );
}

function RackBox({ rack, whole }: { rack: Rack; whole: boolean }) {
  const all = rack.switches.flatMap((s) => s.nodes);
  const net = sumOf(all.map((n) => networkOf(hosts.get(n.id))));
  const name = rack.name ? `Rack ${rack.name}` : 'Rack unknown';
  return (
    <section class="rack" aria-label={name}>
      <h3>
        {name}{' '}
        <small>
          {plural(all.length, 'node')},{' '}
          {plural(
            all.reduce((sum, n) => sum + n.gpus.length, 0),
            'GPU',
          )}
          , network {said(net)}
        </small>
      </h3>
      {whole && rack.switches.map((s) => <SwitchPicture key={s.name} at={s} />)}
    </section>
  );
}

export function Fabric() {
  gpuTick.value;
  const racks = useMemo(() => racksOf(nodes.values()), [nodesTick.value]);
  const count = racks.reduce((n, r) => n + r.switches.reduce((m, s) => m + s.nodes.length, 0), 0);
  if (count < 2) return null;
  return (
    <>
      <h2>Links now</h2>
      <p class="note">
        A line is as wide as what goes over it: above a node its network, below its GPUs NVLink.
      </p>
      <div class="scroll racks" tabIndex={0} role="region" aria-label="Racks, switches and links">
        {racks.map((rack) => (
          <RackBox key={rack.name} rack={rack} whole={count <= nodesMax} />
        ))}
      </div>
    </>
  );
}
