const [WIDTH, HEIGHT] = [120, 24];

/** A small curve without axes. */
export function TrendLine({ values, label }: { values: readonly number[]; label: string }) {
  if (values.length === 0) return <span className="hint">–</span>;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (i: number): number => (values.length === 1 ? WIDTH / 2 : 2 + (i * (WIDTH - 4)) / (values.length - 1));
  const y = (value: number): number =>
    high === low ? HEIGHT / 2 : HEIGHT - 3 - ((value - low) * (HEIGHT - 6)) / (high - low);
  const points = values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`);
  const last = values.length - 1;
  return (
    <svg
      className="trend"
      role="img"
      aria-label={label}
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width={WIDTH}
      height={HEIGHT}
    >
      <polyline points={points.join(' ')} />
      <circle cx={x(last)} cy={y(values[last] ?? 0)} r="2.5" />
    </svg>
  );
}
