import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import uPlot from 'uplot';
import { short, tick } from '../format.ts';
import type { Chart } from '../overlay.ts';

const HEIGHT = 170;
const COLORS = ['--line-1', '--line-2', '--line-3', '--line-4'];

const dark = matchMedia('(prefers-color-scheme: dark)');
const onScheme = (changed: () => void): (() => void) => {
  dark.addEventListener('change', changed);
  return () => dark.removeEventListener('change', changed);
};

/** The most values of a curve that are each marked with a point. */
const MOST_POINTS = 60;

/** A curve. Its caption has the newest values, or those under the pointer; the table below it has all. */
export function Curve({ title, x, xLabel, lines, band, hint, isMerged = false }: Chart) {
  const place = useRef<HTMLDivElement>(null);
  const drawn = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const isDark = useSyncExternalStore(onScheme, () => dark.matches);
  const data = useMemo(
    (): uPlot.AlignedData => [x, ...lines.map(({ values }) => values), ...(band ? [band.low, band.high] : [])],
    [x, lines, band],
  );
  const newest = useRef(data);
  const shown = useRef(lines);
  const styles = JSON.stringify(lines.map(({ values: _values, under: _under, ...style }) => style));
  useEffect(() => {
    shown.current = lines;
  }, [lines]);
  const hasBand = band !== undefined;
  useEffect(() => {
    const root = place.current;
    if (!root) return undefined;
    const style = getComputedStyle(root);
    const color = (name: string): string => style.getPropertyValue(name).trim();
    const axis = {
      stroke: color('--dim'),
      font: '11px system-ui, sans-serif',
      grid: { stroke: color('--grid'), width: 1 },
      ticks: { show: false },
    };
    const own = shown.current.map(({ label, color: number, isDashed = false }, i) => ({
      label,
      stroke: color(COLORS[(number ?? i) % COLORS.length] ?? ''),
      width: 1.5,
      ...(isDashed ? { dash: [6, 4] } : {}),
      spanGaps: true,
      points: { show: (plot: uPlot) => plot.data[0].length < MOST_POINTS, size: 5 },
    }));
    const edge = { label: '', stroke: 'transparent', points: { show: false }, spanGaps: true };
    const plot = new uPlot(
      {
        width: root.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { sync: { key: xLabel }, y: false, points: { size: 6 } },
        scales: { x: { time: false } },
        axes: [
          { ...axis, size: 28, values: (_plot, ticks) => ticks.map(tick) },
          { ...axis, size: 48, values: (_plot, ticks) => ticks.map(tick) },
        ],
        hooks: { setCursor: [({ cursor }) => setAt(cursor.idx ?? null)] },
        series: [{ label: xLabel }, ...own, ...(hasBand ? [edge, edge] : [])],
        bands: hasBand ? [{ series: [own.length + 2, own.length + 1], fill: color('--band') }] : [],
      },
      newest.current,
      root,
    );
    drawn.current = plot;
    const resized = new ResizeObserver(() => plot.setSize({ width: root.clientWidth, height: HEIGHT }));
    resized.observe(root);
    return () => {
      drawn.current = null;
      resized.disconnect();
      plot.destroy();
    };
  }, [styles, hasBand, xLabel, isDark]);
  useEffect(() => {
    newest.current = data;
    if (drawn.current && drawn.current.data !== data) drawn.current.setData(data);
  }, [data]);
  const values = lines.map(({ label, values: all, under = all, color, isDashed }, i) => ({
    label,
    value: at === null ? all.findLast((value) => value !== null) : under[at],
    swatch: `swatch swatch-${(color ?? i) % COLORS.length}${isDashed ? ' swatch-dashed' : ''}`,
  }));
  return (
    <figure className="curve card">
      <figcaption>
        <div>
          <span className="title">{title}</span>
          {hint !== undefined && <span className="hint"> {hint}</span>}
        </div>
        <div className="newest">
          {values.map(({ label, value, swatch }) => (
            <span key={label} className="value">
              {(lines.length > 1 || isMerged) && (
                <>
                  <span className={swatch} />
                  {label}{' '}
                </>
              )}
              {short(value)}
            </span>
          ))}
          {at !== null && (
            <span className="hint">
              {xLabel} {short(x[at])}
            </span>
          )}
        </div>
      </figcaption>
      <div ref={place} aria-hidden="true" />
      <Values title={title} x={x} xLabel={xLabel} lines={lines} />
    </figure>
  );
}

/** A table of a curve's values, for people who cannot see the curve. It is drawn only when it is opened. */
function Values({ title, x, xLabel, lines }: Pick<Chart, 'title' | 'x' | 'xLabel' | 'lines'>) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        Values <span className="hidden">of {title}</span>
      </summary>
      {isOpen && (
        <div className="values" tabIndex={0} role="region" aria-label={`Values of ${title}`}>
          <table>
            <thead>
              <tr>
                <th scope="col">{xLabel}</th>
                {lines.map(({ label }) => (
                  <th scope="col" className="number" key={label}>
                    {label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {x.map((place, i) => (
                <tr key={i}>
                  <th scope="row">{short(place)}</th>
                  {lines.map(({ label, values }) => (
                    <td className="number" key={label}>
                      {short(values[i])}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}
