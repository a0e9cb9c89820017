import { createServer, type Server } from 'node:http';
import { once } from 'node:events';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { RecordBatchFileWriter, RecordBatchStreamWriter, tableFromJSON } from 'apache-arrow';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { rowsSource } from '../../core/run-config/task-source.ts';
import type { NumberedRow } from './formats/index.ts';
import { readRows } from './read-rows.ts';

let folder = '';
beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'trialgate-rows-'))));
afterEach(() => rm(folder, { recursive: true }));

async function write(name: string, content: string | Uint8Array): Promise<string> {
  await mkdir(dirname(join(folder, name)), { recursive: true });
  await writeFile(join(folder, name), content);
  return join(folder, name);
}

async function read(given: object): Promise<NumberedRow[]> {
  const rows: NumberedRow[] = [];
  for await (const each of readRows(rowsSource.parse(given), join(folder, 'cache'))) rows.push(each);
  return rows;
}
const rowsOf = async (given: object) => (await read(given)).map(({ row }) => row);

const ROWS = [
  { question: 'How many?', answer: 42 },
  { question: 'Which one, "a" or b?', answer: 7 },
];
const table = () => tableFromJSON(ROWS);
const parquet = (rows = ROWS): Uint8Array =>
  new Uint8Array(
    parquetWriteBuffer({
      columnData: [
        { name: 'question', data: rows.map(({ question }) => question) },
        { name: 'answer', data: rows.map(({ answer }) => answer), type: 'INT32' },
      ],
    }),
  );

test('JSON Lines, Parquet and both forms of Arrow give the same rows, and CSV the same as texts', async () => {
  const jsonl = await write('a.jsonl', `${ROWS.map((row) => JSON.stringify(row)).join('\n\n')}\n`);
  expect(await rowsOf({ rows: jsonl })).toEqual(ROWS);
  expect(await rowsOf({ rows: await write('a.parquet', parquet()) })).toEqual(ROWS);
  const stream = RecordBatchStreamWriter.writeAll(table()).toUint8Array(true);
  expect(await rowsOf({ rows: await write('a.arrow', stream) })).toEqual(ROWS);
  const file = RecordBatchFileWriter.writeAll(table()).toUint8Array(true);
  expect(await rowsOf({ rows: await write('b.arrow', file) })).toEqual(ROWS);
  const csv = await write('a.csv', '\uFEFFquestion,answer\nHow many?,42\n"Which one, ""a"" or b?",7\n');
  expect(await rowsOf({ rows: csv })).toEqual(ROWS.map((row) => ({ ...row, answer: String(row.answer) })));
});

const LATIN = new Uint8Array([...Buffer.from('caf'), 0xe9]);

test('Parquet’s bytes are base64 for the reward, and refused in a prompt', async () => {
  const columnData = [
    { name: 'question', data: ['a', 'b'] },
    { name: 'raw', data: [new Uint8Array([1, 2]), LATIN], type: 'BYTE_ARRAY' as const },
  ];
  const rows = await write('bytes.parquet', new Uint8Array(parquetWriteBuffer({ columnData })));
  expect(await rowsOf({ rows, prompt: '{question}' })).toEqual([
    { question: 'a', raw: 'AQI=' },
    { question: 'b', raw: 'Y2Fm6Q==' },
  ]);
  await expect(read({ rows, prompt: 'Read {raw}' })).rejects.toThrow(
    `${rows}, row 0: the prompt names the column \`raw\`, which has bytes`,
  );
});

test('a text of Parquet or Arrow that is not UTF-8 is refused by row and column', async () => {
  // The writers make UTF-8 alone, so the bytes of one text are changed in the file.
  const spoilt = (bytes: Uint8Array) => {
    const at = Buffer.from(bytes).indexOf('Which one');
    bytes[at + 8] = 0xe9;
    return bytes;
  };
  const plain = parquetWriteBuffer({
    columnData: [{ name: 'question', data: ROWS.map(({ question }) => question), type: 'STRING' }],
    codec: 'UNCOMPRESSED',
    statistics: false,
  });
  for (const [name, bytes] of [
    ['bad.parquet', new Uint8Array(plain)],
    ['bad.arrow', RecordBatchStreamWriter.writeAll(table()).toUint8Array(true)],
  ] as const) {
    const rows = await write(name, spoilt(bytes));
    await expect(read({ rows, prompt: '{question}' })).rejects.toThrow(
      `${rows}, row 1: the column \`question\` has a text that is not UTF-8`,
    );
  }
});

test('a text with another line end of Unicode stays one row', async () => {
  const rows = await write('a.jsonl', '{"a": "one\u2028two\u0085three"}\r\n{"a": "four"}');
  expect(await rowsOf({ rows })).toEqual([{ a: 'one\u2028two\u0085three' }, { a: 'four' }]);
});

test('lines longer than the pieces in which a file is read are whole rows, and later lines keep their numbers', async () => {
  const long = 'é'.repeat(200_000);
  const rows = await write('a.jsonl', `{"a": "${long}"}\n{"a": 2}\n`);
  expect((await read({ rows })).map(({ row, where }) => [row, where])).toEqual([
    [{ a: long }, `${rows}:1`],
    [{ a: 2 }, `${rows}:2`],
  ]);
});

test('a source has at most its limit of rows', async () => {
  const rows = await write('a.jsonl', '{"a": 1}\n{"a": 2}\n{"a": 3}\nnot read');
  expect(await rowsOf({ rows, limit: 2 })).toEqual([{ a: 1 }, { a: 2 }]);
});

test.each([
  ['broken JSON', 'a.jsonl', '{"a": 1}\n{"a": }\n', /a\.jsonl:2: not JSON/],
  ['a line that is no object', 'a.jsonl', '[1]\n', /a\.jsonl:1: expected a JSON object, found \[1\]/],
  ['no rows', 'a.jsonl', '\n', /a\.jsonl has no rows/],
  ['a row of CSV with too many fields', 'a.csv', 'a,b\n1,2\n1,2,3\n', /a\.csv: not CSV: .*line 3/],
  ['a header alone', 'a.csv', 'a,b\n', /a\.csv has no rows/],
  ['bytes that are no Parquet', 'a.parquet', 'nothing of the kind', /a\.parquet: not a readable Parquet file/],
  ['bytes that are no Arrow', 'a.arrow', 'nothing of the kind', /a\.arrow/],
  ['JSON in Latin-1', 'a.jsonl', Buffer.from('{"a": 1}\n{"a": "é"}\n', 'latin1'), /a\.jsonl:2:8: not UTF-8/],
  ['JSON in UTF-16', 'a.jsonl', Buffer.from('\uFEFF{"a": 1}\n', 'utf16le'), /a\.jsonl:1:1: not UTF-8/],
  ['CSV in Latin-1', 'a.csv', Buffer.from('a\nb\n"c\né"\n', 'latin1'), /a\.csv:4:1: not UTF-8/],
])('rows with %s are refused with the file and the line', async (_, name, content, message) => {
  const rows = await write(name, content);
  await expect(read({ rows })).rejects.toMatchObject({
    code: 'bad_input',
    message: expect.stringMatching(message),
  });
});

test('a folder gives the files of the split: by name, in `data/`, or in a folder of the split’s name', async () => {
  await write('byname/train.jsonl', '{"a": 1}');
  await write('byname/test.jsonl', '{"a": 2}');
  expect(await rowsOf({ rows: join(folder, 'byname'), split: 'test' })).toEqual([{ a: 2 }]);
  await write('repo/data/train-00000-of-00002.parquet', parquet(ROWS.slice(0, 1)));
  await write('repo/data/train-00001-of-00002.parquet', parquet(ROWS.slice(1)));
  expect(await rowsOf({ rows: join(folder, 'repo') })).toEqual(ROWS);
  await write('saved/train/data-00000-of-00001.arrow', RecordBatchStreamWriter.writeAll(table()).toUint8Array(true));
  expect(await rowsOf({ rows: join(folder, 'saved') })).toEqual(ROWS);
  await write('plain/part-1.jsonl', '{"a": 1}');
  expect(await rowsOf({ rows: join(folder, 'plain') })).toEqual([{ a: 1 }]);
});

test('a folder without the split is refused, and the message lists what there is', async () => {
  await write('byname/train.jsonl', '{"a": 1}');
  await expect(read({ rows: join(folder, 'byname'), split: 'dev' })).rejects.toThrow(
    'has no split dev: there are train.jsonl',
  );
});

test('a file that does not exist is refused, with the one that was probably meant', async () => {
  await write('near/train.jsonl', '{"a": 1}');
  await expect(read({ rows: join(folder, 'near/trian.jsonl') })).rejects.toThrow(
    /Did you mean .*near\/train\.jsonl\?$/,
  );
  await expect(read({ rows: join(folder, 'nowhere.jsonl') })).rejects.toThrow(/there is no file or folder .*nowhere/);
});

/** A hub with one dataset of two subsets, one of which has one split. */
async function fakeHub(): Promise<{ server: Server; url: string; requests: string[] }> {
  const requests: string[] = [];
  const server = createServer((request, response) => {
    requests.push(`${request.url} ${request.headers.authorization ?? ''}`.trim());
    const { url = '' } = request;
    if (url === '/api/datasets/me/sums/parquet')
      response.end(
        JSON.stringify({ main: { train: [`${hub.url}/0.parquet`, `${hub.url}/1.parquet`] }, other: { train: [] } }),
      );
    else if (url === '/0.parquet') response.end(parquet(ROWS.slice(0, 1)));
    else if (url === '/1.parquet') response.end(parquet(ROWS.slice(1)));
    else response.writeHead(404).end();
  });
  const hub = { server, url: '', requests };
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  hub.url = `http://127.0.0.1:${address !== null && typeof address === 'object' ? address.port : 0}`;
  vi.stubEnv('HF_ENDPOINT', hub.url);
  return hub;
}

test('a dataset on the hub is downloaded once, with the user’s token', async () => {
  const { server, requests } = await fakeHub();
  vi.stubEnv('HF_TOKEN', 'secret');
  try {
    expect(await rowsOf({ rows: 'me/sums', name: 'main' })).toEqual(ROWS);
    expect(await rowsOf({ rows: 'me/sums', name: 'main' })).toEqual(ROWS);
    expect(requests.filter((each) => each.startsWith('/0.parquet'))).toEqual(['/0.parquet Bearer secret']);
    await expect(read({ rows: 'me/sums' })).rejects.toThrow('me/sums has the subsets main, other: say `name:`');
    await expect(read({ rows: 'me/sums', name: 'main', split: 'test' })).rejects.toThrow(
      'has no split test: there are train',
    );
    await expect(read({ rows: 'me/none' })).rejects.toThrow(/answered 404; check the name, or set HF_TOKEN/);
  } finally {
    vi.unstubAllEnvs();
    server.close();
  }
});

test('a hub that cannot be reached is named with the connection’s error', async () => {
  const { server, url } = await fakeHub();
  server.close();
  await once(server, 'close');
  await expect(read({ rows: 'me/sums' })).rejects.toThrow(new RegExp(`${url}.*cannot be reached: .*ECONNREFUSED`));
  vi.unstubAllEnvs();
});
