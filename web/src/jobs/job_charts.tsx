// What a job used over time, as charts with the head's findings.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { get, type Series } from '../data/api';
import { Chart } from '../parts/chart';
import { gib, lasting, rate } from '../data/format';

export function Charts({
  id,
  running,
  began,
  cores,
}: {
  id: string;
  running: boolean;
  began: boolean;
  cores: number;
}) {
  const data = useSignal<Series | null>(null);
  useEffect(() => {
    let gone = false;
    const load = () => {
      if (!document.hidden)
        void get<Series>(`/v1/jobs/${id}/history`).then(
          (s) => {
            if (!gone) data.value = s;
          },
          () => {},
        );
    };
    load();
    const timer = running ? window.setInterval(load, 5000) : 0;
    return () => {
      gone = true;
      window.clearInterval(timer);
    };
  }, [id, running]);
  const s = data.value;
  if (!began) return null;
  if (!s || s.points < 2)
    return (
      <section class="panel gap">
        <h2>Use</h2>
        <p class="note">
          {running
            ? 'The first samples arrive within seconds.'
            : 'Nothing was recorded: the job was too short.'}
        </p>
      </section>
    );
  const any = (name: string) => s.series[name]?.some((v) => v != null && v > 0);
  const known = (name: string) => s.series[name]?.some((v) => v != null);
  const common = { fromMs: s.from_ms, stepS: s.step_s };
  return (
    <section aria-label="Use">
      <h2>
        Use <small>one point per {lasting(s.step_s)}</small>
      </h2>
      {s.findings?.map((f) => (
        <p class={`finding ${f.kind}`} role="note">
          <b>
            {f.kind === 'input_bound'
              ? 'Input-bound'
              : f.kind === 'idle'
                ? 'Idle'
                : 'More than it needs'}
            :
          </b>{' '}
          {f.text}. {f.hint.charAt(0).toUpperCase() + f.hint.slice(1)}.
        </p>
      ))}
      <div class="charts">
        {known('gpu_util_pct') && (
          <Chart
            {...common}
            title="GPU"
            max={100}
            format={(v) => `${v.toFixed(0)} %`}
            lines={[
              { label: 'busy', values: s.series.gpu_util_pct, colour: 1 },
              ...(known('sm_active_pct')
                ? [{ label: 'SMs active', values: s.series.sm_active_pct, colour: 2 as const }]
                : []),
            ]}
          />
        )}
        {known('gpu_mem_mib') && (
          <Chart
            {...common}
            title="GPU memory"
            format={gib}
            unit="binary"
            lines={[{ label: 'used', values: s.series.gpu_mem_mib, colour: 1 }]}
          />
        )}
        {known('gpu_power_w') && (
          <Chart
            {...common}
            title="GPU power"
            format={(v) => `${v.toFixed(0)} W`}
            lines={[{ label: 'drawn', values: s.series.gpu_power_w, colour: 3 }]}
          />
        )}
        {known('cpu_cores') && (
          <Chart
            {...common}
            title={`CPU of ${cores || s.cores || '?'} cores`}
            least={0.5}
            format={(v) => v.toFixed(v < 1 ? 2 : 1)}
            lines={[{ label: 'cores', values: s.series.cpu_cores, colour: 1 }]}
          />
        )}
        {known('mem_mib') && (
          <Chart
            {...common}
            title="Memory"
            format={gib}
            unit="binary"
            lines={[{ label: 'resident', values: s.series.mem_mib, colour: 2 }]}
          />
        )}
        {known('read_kib_s') && (
          <Chart
            {...common}
            title="Disk and pipes"
            format={rate}
            unit="binary"
            lines={[
              { label: 'read', values: s.series.read_kib_s, colour: 1 },
              { label: 'written', values: s.series.write_kib_s, colour: 2 },
            ]}
          />
        )}
        {any('pcie_rx_kib_s') && (
          <Chart
            {...common}
            title="PCIe"
            format={rate}
            unit="binary"
            lines={[
              { label: 'to the GPU', values: s.series.pcie_rx_kib_s, colour: 1 },
              { label: 'from the GPU', values: s.series.pcie_tx_kib_s, colour: 2 },
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
              { label: 'received', values: s.series.nvlink_rx_kib_s, colour: 1 },
              { label: 'sent', values: s.series.nvlink_tx_kib_s, colour: 2 },
            ]}
          />
        )}
        {known('node_net_rx_kib_s') && (
          <Chart
            {...common}
            title="Network of the node"
            format={rate}
            unit="binary"
            lines={[
              { label: 'received', values: s.series.node_net_rx_kib_s, colour: 1 },
              { label: 'sent', values: s.series.node_net_tx_kib_s, colour: 2 },
            ]}
          />
        )}
      </div>
    </section>
  );
}
