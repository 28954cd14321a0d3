// Around the Gantt chart: legend, the card that explains the block under the pointer, the table.
import { useSignal, type Signal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { dark } from '../parts/chart';
import { gpus, lasting, moment, plural } from '../data/format';
import type { Block, Card, Hit, Row, View } from './blocks';
import { moneyText, titleOf } from './gantt_draw';
import { colours } from './palette';

const projectsShown = 12;
export function Legend({
  projects,
  only,
}: {
  projects: Map<string, number>;
  only: Signal<string>;
}) {
  const list = [...projects].slice(0, projectsShown);
  return (
    <div class="gantt-legend">
      {list.map(([name, at]) => (
        <button
          type="button"
          class="link"
          aria-pressed={only.value === name}
          title={`Show only project ${name}`}
          onClick={() => {
            only.value = only.value === name ? '' : name;
          }}
        >
          <Swatch colour={colours(dark.value)[at]} /> {name}
        </button>
      ))}
      {projects.size > list.length && (
        <span>and {plural(projects.size - list.length, 'more project')}</span>
      )}
      {(['idle', 'reserved', 'drained', 'lost'] as const).map((kind) => (
        <span>
          <i class={`swatch ${kind}`} /> {kind}
        </span>
      ))}
      <span>
        <i class="swatch waste" /> held but not used
      </span>
    </div>
  );
}

export function Swatch({ colour }: { colour: string }) {
  const at = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (at.current) at.current.style.background = colour;
  }, [colour]);
  return <i class="swatch" ref={at} />;
}

const words: Record<string, string> = {
  run: 'ran',
  idle: 'Nothing ran here',
  drained: 'Drained',
  lost: 'Lost',
  reserved: 'Reserved',
};
export function blockTitle(b: Block): string {
  return b.kind === 'run'
    ? titleOf(b)
    : words[b.kind] + (b.kind === 'reserved' && b.name ? `: ${b.name}` : '');
}
const whoText = (b: Block) =>
  [b.job && b.jobs <= 1 ? `job ${b.job}` : '', b.user, b.project && `project ${b.project}`]
    .filter(Boolean)
    .join(', ');

export function HoverCard({
  rows,
  hit,
  at,
  now,
}: {
  rows: Row[];
  hit: Hit | null;
  at: { x: number; y: number } | null;
  now: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const card = hit ? rows[hit.row]?.card : undefined;
  const block = card && hit ? card.blocks[hit.block] : undefined;
  useLayoutEffect(() => {
    const el = box.current;
    if (!el || !el.parentElement || !block) return;
    const room = el.parentElement.getBoundingClientRect();
    const x = at ? at.x + 14 : 140;
    const y = at ? at.y + 16 : 36;
    el.style.left = `${Math.max(0, Math.min(x, room.width - el.offsetWidth - 4))}px`;
    el.style.top = `${y + el.offsetHeight > room.height + 60 && at ? at.y - el.offsetHeight - 10 : y}px`;
  });
  return (
    <div
      class={block ? 'gantt-card' : 'sr'}
      ref={box}
      role="status"
      aria-live={at ? 'off' : 'polite'}
    >
      {block && card && (
        <>
          <b>{blockTitle(block)}</b>
          {whoText(block) && <span>{whoText(block)}</span>}
          <span>
            {card.node}, GPU {card.index} ({card.type})
            {block.milli > 0 && block.milli < 1000 ? `, ${gpus(block.milli)} of it` : ''}
          </span>
          <span>
            {lasting((Math.min(block.to, Math.max(now, block.from)) - block.from) / 1000)} from{' '}
            {moment(block.from, now)}
            {block.to > now && block.kind !== 'reserved'
              ? ', still'
              : ` until ${moment(block.to, now)}`}
          </span>
          {block.reason && <span>{block.reason}</span>}
          {block.waste >= 0.01 && (
            <span class="warn">
              {moneyText(block.waste)}{' '}
              {block.kind === 'run' ? 'while the GPU was allocated but idle' : 'not used'}
            </span>
          )}
        </>
      )}
    </div>
  );
}

const tableMax = 200;
export function GanttTable({ cards, view, now }: { cards: Card[]; view: View; now: number }) {
  const open = useSignal(false);
  let all = 0;
  const seen: { card: Card; b: Block }[] = [];
  for (const card of cards)
    for (const b of card.blocks)
      if (b.to > view.from && b.from < view.to) {
        all++;
        if (open.value && seen.length < tableMax) seen.push({ card, b });
      }
  return (
    <details
      class="gantt-table"
      onToggle={(e) => {
        open.value = e.currentTarget.open;
      }}
    >
      <summary>As a table ({plural(all, 'entry', 'entries')})</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label="GPUs over time as a table">
        <table>
          <thead>
            <tr>
              <th>GPU</th>
              <th>What</th>
              <th>User</th>
              <th>Project</th>
              <th>From</th>
              <th>Until</th>
              <th class="right">Wasted</th>
            </tr>
          </thead>
          <tbody>
            {seen.map(({ card, b }) => (
              <tr>
                <td>
                  {card.node} · {card.index}
                </td>
                <td>{b.job ? <a href={`#/jobs/${b.job}`}>{blockTitle(b)}</a> : blockTitle(b)}</td>
                <td>{b.user || '–'}</td>
                <td>{b.project || '–'}</td>
                <td>{moment(b.from, now)}</td>
                <td>{b.to > now && b.kind !== 'reserved' ? 'still' : moment(b.to, now)}</td>
                <td class="right">{b.waste >= 0.01 ? moneyText(b.waste) : '–'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {open.value && all > seen.length && (
        <p class="note">
          The first {seen.length} of {all.toLocaleString()} entries; zoom in to see the others.
        </p>
      )}
    </details>
  );
}
