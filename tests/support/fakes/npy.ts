/** Returns rows of bytes as NumPy's file: of 8-bit integers, with one layer of as many experts as a row is long. */
export function npyOf(rows: readonly (readonly number[])[]): Buffer {
  const shape = `(${rows.length}, 1, ${rows[0]?.length ?? 0})`;
  const dictionary = `{'descr': '|u1', 'fortran_order': False, 'shape': ${shape}, }`;
  // The header fills a multiple of 64 bytes with the ten before it.
  const header = `${dictionary.padEnd(Math.ceil((dictionary.length + 11) / 64) * 64 - 11)}\n`;
  const start = Buffer.from([0x93, ...Buffer.from('NUMPY'), 1, 0, header.length & 0xff, header.length >> 8]);
  return Buffer.concat([start, Buffer.from(header), Buffer.from(rows.flat())]);
}
