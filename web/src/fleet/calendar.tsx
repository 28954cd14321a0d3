// Reservations of the next two weeks as a calendar: a row per reservation, a column per day in the
// reader's time zone. The table below it has the same content for screen readers, with the cost.
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { gpus, moment, numbers, plural, weekday } from '../data/format';
import { maySubmit } from '../data/rights';
import { Badge, Line } from '../parts/ui';

export interface Reservation {
  id: number;
  name: string;
  project: string;
  user: string;
  from: string;
  until: string;
  state: string;
  gpu_milli: number;
  used_milli: number;
  places: { node: string | null; gpus: number[] }[];
  cost: string;
}

const days = 14,
  dayMs = 86_400_000;

const Make = () =>
  maySubmit() ? (
    <p class="more">
      <a href="#/reservations">Make or cancel a reservation</a>
    </p>
  ) : null;

export function Calendar({ list, now }: { list: Reservation[]; now: number }) {
  const box = useRef<HTMLDivElement>(null);
  const wide = useSignal(0);
  useEffect(() => {
    if (!box.current) return;
    const watch = new ResizeObserver(([entry]) => {
      wide.value = entry.contentRect.width;
    });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [list.length === 0]);
  if (!list.length)
    return (
      <>
        <p class="note">
          No reservations. A reservation sets GPUs aside for a project for a fixed period:
        </p>
        <Line text="billow reserve --gpus 4 --from 18:00 --for 8h --name sweep" />
        <Make />
      </>
    );
  const start = new Date(now);
  start.setHours(0, 0, 0, 0);
  const begin = start.getTime(),
    left = 150,
    col = Math.max(58, Math.floor((wide.value - 150) / days)),
    rowH = 34,
    top = 34;
  const dates = Array.from({ length: days }, (_, i) => {
    const d = new Date(begin);
    d.setDate(d.getDate() + i);
    return d;
  });
  // By calendar days, not by 24 hours: days on which clocks change are longer or shorter.
  const x = (ms: number) => {
    const i = dates.filter((d) => d.getTime() <= ms).length - 1;
    if (i < 0) return left;
    const next = i + 1 < days ? dates[i + 1].getTime() : dates[i].getTime() + dayMs;
    return left + col * Math.min(days, i + (ms - dates[i].getTime()) / (next - dates[i].getTime()));
  };
  const rows = [...list].sort((a, b) => Date.parse(a.from) - Date.parse(b.from));
  const later = rows.filter((r) => Date.parse(r.from) >= begin + days * dayMs).length;
  const drawn = rows.filter((r) => Date.parse(r.from) < begin + days * dayMs);
  const h = top + drawn.length * rowH + 6,
    w = left + days * col;
  return (
    <>
      <div
        class="scroll"
        ref={box}
        tabIndex={0}
        role="region"
        aria-label="Reservations as a calendar"
      >
        <svg
          class="calendar"
          viewBox={`0 0 ${w} ${h}`}
          width={w}
          height={h}
          role="img"
          aria-label={`${plural(drawn.length, 'reservation')} within ${days} days; see the table below`}
        >
          {dates.map((d, i) => (
            <g>
              <rect
                class={d.getDay() % 6 === 0 ? 'weekend' : 'day'}
                x={left + i * col}
                y="0"
                width={col}
                height={h}
              />
              <text class={i === 0 ? 'today' : ''} x={left + i * col + col / 2} y="14">
                {weekday(d)}
              </text>
              <text class="small" x={left + i * col + col / 2} y="27">
                {d.getDate()}
              </text>
            </g>
          ))}
          <line class="now" x1={x(now)} x2={x(now)} y1={top - 4} y2={h} />
          {drawn.map((r, i) => {
            const a = x(Date.parse(r.from)),
              b = Math.max(a + 6, x(Date.parse(r.until))),
              y = top + i * rowH;
            return (
              <g>
                <text class="name" x="12" y={y + 20}>
                  {(r.name || `reservation ${r.id}`).slice(0, 18)}
                </text>
                <rect
                  class={`bar ${r.state}`}
                  x={a}
                  y={y + 4}
                  width={b - a}
                  height={rowH - 10}
                  rx="6"
                />
                <text
                  class="what"
                  x={b + 92 > w ? a - 6 : b + 6}
                  y={y + 20}
                  text-anchor={b + 92 > w ? 'end' : 'start'}
                >
                  {gpus(r.gpu_milli)} {r.gpu_milli === 1000 ? 'GPU' : 'GPUs'}
                </text>
              </g>
            );
          })}
        </svg>
      </div>
      {later > 0 && (
        <p class="note">{plural(later, 'more starts', 'more start')} after these two weeks.</p>
      )}
      <div class="scroll gap" tabIndex={0} role="region" aria-label="Reservations">
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>Project</th>
              <th>GPUs</th>
              <th>In use</th>
              <th>From</th>
              <th>Until</th>
              <th>Where</th>
              <th class="right">Cost</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((r) => (
              <tr>
                <td>
                  {r.name || r.id}{' '}
                  <Badge
                    state={r.state === 'active' ? 'running' : 'queued'}
                    text={r.state === 'active' ? 'active' : 'planned'}
                  />
                </td>
                <td>{r.project}</td>
                <td class="num">{gpus(r.gpu_milli)}</td>
                <td class="num">{gpus(r.used_milli)}</td>
                <td>{moment(r.from)}</td>
                <td>{moment(r.until)}</td>
                <td>
                  {r.places
                    .map(
                      (p) =>
                        (p.node ?? 'a removed node') +
                        (p.gpus.length ? ` (GPU ${numbers(p.gpus)})` : ''),
                    )
                    .join('; ')}
                </td>
                <td class="right">{r.cost}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Make />
    </>
  );
}
