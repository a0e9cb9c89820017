/** Formats a table: pads columns to their widest cell and aligns numbers to the right. */
export function table(header: string[], rows: string[][]): string {
  const lines = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? '').length)));
  const numeric = header.map((_, column) => rows.every((row) => /^[\d.–%-]*$/.test(row[column] ?? '')));
  const format = (line: string[]) =>
    line
      .map((cell, i) => (numeric[i] ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)))
      .join('  ')
      .trimEnd();
  return [format(header), widths.map((width) => '─'.repeat(width)).join('  '), ...rows.map(format)].join('\n');
}
