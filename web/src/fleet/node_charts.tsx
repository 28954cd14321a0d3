// Charts of one GPU or of a whole node over the page's time range.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type NodeInfo, type Series } from '../data/api';
import { Chart } from '../parts/chart';
import { gib, rate } from '../data/format';
import { route } from '../data/store';
import { isLive, rangeOf, resolved } from '../time/range';
import { fleetRange } from '../time/usual';

// One GPU, or (index < 0) the whole node: mean load, total memory and power, highest temperature.
const cardsMax = 16;
type Fold = (values: number[]) => number;
const mean: Fold = (v) => v.reduce((a, b) => a + b, 0) / v.length,
  total: Fold = (v) => v.reduce((a, b) => a + b, 0),
  most: Fold = (v) => Math.max(...v);
function together(list: Series[], name: string, fold: Fold): (number | null)[] {
  return Array.from({ length: Math.max(0, ...list.map((s) => s.points)) }, (_, i) => {
    const known = list.map((s) => s.series[name]?.[i]).filter((v): v is number => v != null);
    return known.length ? fold(known) : null;
  });
}

// The Gantt chart above sets the range of both.
export function GpuCharts({ node, index }: { node: NodeInfo; index: number }) {
  const range = rangeOf(new URLSearchParams(route.value.split('?')[1] ?? ''), fleetRange());
  const data = useSignal<Series[]>([]);
  const which = index >= 0 ? [index] : node.gpus.slice(0, cardsMax).map((g) => g.index);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (document.hidden) return;
      const view = resolved(range, Date.now());
      void Promise.all(
        which.map((i) =>
          get<Series>(
            `/v1/nodes/${encodeURIComponent(node.name)}/gpus/${i}/history` +
              `?from_ms=${Math.round(view.from)}&to_ms=${Math.round(view.to)}&points=240`,
          ),
        ),
      ).then(
        (s) => {
          if (!gone) data.value = s;
        },
        () => {},
      );
    };
    load();
    const view = resolved(range, Date.now());
    const every = view.to - view.from > 3_600_000 ? 60_000 : 10_000;
    const timer = isLive(range) ? window.setInterval(load, every) : 0;
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [node.name, which.join(), range.from, range.to]);
  const list = data.value,
    s = list[0];
  const common = s && { fromMs: s.from_ms, stepS: s.step_s };
  const any = (name: string) =>
    list.some((one) => one.series[name]?.some((v) => v != null && v > 0));
  const one = index >= 0;
  return (
    <section aria-label={one ? `GPU ${index}` : 'The whole node'}>
      <div class="filters top">
        <h2>
          {one ? `GPU ${index}` : which.length === 1 ? 'Its GPU' : `All ${which.length} GPUs`}
        </h2>
        {one && node.gpus.length > 1 && <a href={`#/nodes/${node.name}`}>the whole node</a>}
      </div>
      {s && common && (
        <div class="charts">
          <Chart
            {...common}
            title="Busy"
            max={100}
            format={(v) => `${v.toFixed(0)} %`}
            lines={[
              { label: one ? 'busy' : 'mean', values: together(list, 'util_pct', mean), colour: 1 },
            ]}
          />
          <Chart
            {...common}
            title="Memory"
            max={node.gpus
              .filter((g) => which.includes(g.index))
              .reduce((a, g) => a + g.mem_mib, 0)}
            format={gib}
            unit="binary"
            lines={[{ label: 'used', values: together(list, 'mem_used_mib', total), colour: 2 }]}
          />
          <Chart
            {...common}
            title="Power"
            format={(v) => `${v.toFixed(0)} W`}
            lines={[{ label: 'drawn', values: together(list, 'power_w', total), colour: 3 }]}
          />
          <Chart
            {...common}
            title="Temperature"
            format={(v) => `${v.toFixed(0)} °C`}
            lines={[
              {
                label: one ? 'chip' : 'hottest',
                values: together(list, 'temperature_c', most),
                colour: 4,
              },
            ]}
          />
          {any('pcie_rx_kib_s') && (
            <Chart
              {...common}
              title="PCIe"
              format={rate}
              unit="binary"
              lines={[
                {
                  label: 'to the GPUs',
                  values: together(list, 'pcie_rx_kib_s', total),
                  colour: 1,
                },
                {
                  label: 'from the GPUs',
                  values: together(list, 'pcie_tx_kib_s', total),
                  colour: 2,
                },
              ]}
            />
          )}
          {any('nvlink_rx_kib_s') && (
            <Chart
              {...common}
              title="NVLink"
              format={rate}
              unit="binary"
              lines={[
                { label: 'received', values: together(list, 'nvlink_rx_kib_s', total), colour: 1 },
                { label: 'sent', values: together(list, 'nvlink_tx_kib_s', total), colour: 2 },
              ]}
            />
          )}
        </div>
      )}
    </section>
  );
}
