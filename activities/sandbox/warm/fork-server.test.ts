import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { listPids } from '../../../core/process-stat.ts';
import { agentFile, type AgentFile } from '../../../core/run-config/agent-file.ts';
import {
  canNest,
  sandboxWith,
  taskWith,
  temporaryHome,
  writeFiles,
} from '../../../tests/support/harness/sandbox-fixtures.ts';
import { detectIsolation } from '../isolation.ts';
import { loadAgent, type Agent } from '../load-agent.ts';
import { processTable } from '../process-table.ts';
import { removeTree } from '../remove-tree.ts';
import { runAgentProcess, type AgentResult } from '../run-agent-process.ts';
import { bubblewrapBackend } from '../bubblewrap-backend.ts';

const isolation = await detectIsolation();

describe.skipIf(!(await canNest(isolation)))(
  'a function agent, where sandboxes can have namespaces of their own',
  () => {
    type Trial = AgentResult & { result: unknown };
    type Options = { trialId?: string; signal?: AbortSignal; limits?: Partial<AgentFile['limits']> };

    /** Writes the agent, and returns what runs a trial of it. */
    async function agentOf(code: string, more: Partial<AgentFile> = {}, packages: Record<string, string> = {}) {
      const folder = await temporaryHome();
      const { home } = folder;
      onTestFinished(async () => {
        await removeTree(join(home, 'sandboxes'));
        await folder[Symbol.asyncDispose]();
      });
      const file = `my_${randomUUID().replaceAll('-', '')}.py`;
      const write = (text: string) => writeFiles(home, { [`agent/${file}`]: text });
      await write(code);
      await writeFiles(join(home, 'packages'), packages);
      const folders = Object.keys(packages).length > 0 ? [join(home, 'packages')] : [];
      const environment = { python: isolation.python.executable, folders, path: [], nodeModules: null };
      const agent = async (): Promise<Agent> =>
        loadAgent(agentFile.parse({ function: join(home, `agent/${file}:run`), ...more }));
      const task = await taskWith(home, 'true');
      const server = createServer((request, response) => response.end(request.url)).listen(0, '127.0.0.1');
      await once(server, 'listening');
      onTestFinished(() => void server.close());
      const address = server.address();
      const gateway = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
      const trial = async ({ trialId = 'trial', signal = new AbortController().signal, limits = {} }: Options = {}) => {
        const sandbox = await sandboxWith(home, {}, task, trialId);
        const loaded = await agent();
        const ended = await runAgentProcess({
          agent: { ...loaded, limits: { ...loaded.limits, ...limits } },
          task,
          sandbox,
          backend: bubblewrapBackend(isolation),
          environment,
          trialId,
          gateway,
          network: 'gateway',
          apiKey: `key of ${trialId}`,
          model: 'policy',
          signal,
        });
        const text = await readFile(join(sandbox.work, 'result.json'), 'utf8').catch(() => '');
        // A process that is ended while it writes leaves an empty file.
        return { ...ended, result: JSON.parse(text || 'null') } satisfies Trial;
      };
      return { trial, write, file, home };
    }

    const DEEP = `
        for _ in range(3000):
            os.mkdir("deep"); os.chdir("deep")
        os._exit(5)`;
    const INTERRUPTS = `
        import signal, time
        for _ in range(50): os.kill(1, signal.SIGINT); time.sleep(0.01)
        os._exit(6)`;
    const IMPORTED = 'import os, random, uuid\nIMPORT = str(uuid.uuid4())\n';

    test('its module is imported once for all trials, and each trial has its own folder, key, URL and random numbers', async () => {
      const { trial } = await agentOf(`${IMPORTED}
def run(task, model):
    open("mine.txt", "x").close()
    return {"import": IMPORT, "key": model.api_key, "url": model.base_url, "random": random.random(), "home": os.environ["HOME"]}`);
      const names = Array.from({ length: 6 }, (_, index) => `trial-${index}`);
      const results = await Promise.all(names.map(async (trialId) => (await trial({ trialId })).result));
      expect(results).toMatchObject(
        names.map((name) => ({
          key: `key of ${name}`,
          url: expect.stringMatching(`/${name}/v1$`),
          home: '/home/agent',
        })),
      );
      const distinct = (field: string) => new Set(results.map((each) => Reflect.get(Object(each), field))).size;
      expect({ imports: distinct('import'), randoms: distinct('random') }).toEqual({
        imports: 1,
        randoms: names.length,
      });
    });

    test('with `warm: false`, and after a change of its file, its module is imported again', async () => {
      const code = `${IMPORTED}\ndef run(task): return IMPORT`;
      const cold = await agentOf(code, { warm: false });
      expect((await cold.trial()).result).not.toBe((await cold.trial()).result);
      const warm = await agentOf(code);
      const before = (await warm.trial()).result;
      expect((await warm.trial()).result).toBe(before);
      await warm.write(`${code}\n`);
      // A burst of trials looks for changes once.
      await sleep(1100);
      expect((await warm.trial()).result).not.toBe(before);
    });

    test('a module that reads a trial’s variable when it is imported is imported again by each trial, and reads that trial’s value', async () => {
      const { trial } = await agentOf('import os\nKEY = os.environ.get("OPENAI_API_KEY")\ndef run(task): return KEY');
      expect((await trial({ trialId: 'one' })).result).toBe('key of one');
      expect((await trial({ trialId: 'two' })).result).toBe('key of two');
    });

    test.each([
      ['copies all variables when it is imported', 'ALL = dict(os.environ)', 'ALL.get("OPENAI_API_KEY")'],
      ['leaves a file open when it is imported', 'OPEN = os.open("/tmp", os.O_RDONLY)', 'os.environ["OPENAI_API_KEY"]'],
    ])('a module that %s is imported for each trial', async (_, atImport, value) => {
      const { trial } = await agentOf(`${IMPORTED}${atImport}\ndef run(task): return [IMPORT, ${value}]`);
      const [one, two] = [await trial({ trialId: 'one' }), await trial({ trialId: 'two' })];
      expect([one.result, two.result]).toMatchObject([
        [expect.any(String), 'key of one'],
        [expect.any(String), 'key of two'],
      ]);
      expect(Reflect.get(Object(one.result), 0)).not.toBe(Reflect.get(Object(two.result), 0));
    });

    test('the memory of a trial has no key but its own', async () => {
      const { trial } = await agentOf(`
import os, re
def run(task, model):
    found = set()
    for line in open("/proc/self/maps"):
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if " rw" not in line: continue
        with open("/proc/self/mem", "rb") as memory:
            try:
                memory.seek(start)
                found |= set(re.findall(rb"key of tri[a-z]{2}[0-9]", memory.read(end - start)))
            except (OSError, ValueError, OverflowError): pass
    return sorted(each.decode() for each in found)`);
      const names = ['trial0', 'trial1', 'trial2'];
      const results = [
        ...(await Promise.all(names.map((trialId) => trial({ trialId })))),
        await trial({ trialId: 'trial3' }),
      ];
      expect(results.map(({ result }) => result)).toEqual([...names, 'trial3'].map((name) => [`key of ${name}`]));
    });

    test('a trial whose module cannot be imported ends as agent_error, and its reason has the lines of the import’s error', async () => {
      const { trial } = await agentOf('import nothing_like_this\ndef run(task): pass');
      expect(await trial()).toMatchObject({
        ending: 'agent_error',
        reason: expect.stringContaining("No module named 'nothing_like_this'"),
      });
    });

    test('a trial reaches the gateway, and no file, process or loopback of its warm process or of another trial', async () => {
      const { trial } = await agentOf(`
import errno, os, pathlib, socket, time, urllib.request
def run(task, model):
    own = socket.create_server(("127.0.0.1", 8111))  # fails where the loopback is shared
    pathlib.Path("/tmp/shared").touch(exist_ok=False)
    pathlib.Path("/dev/shm/shared").touch(exist_ok=False)
    time.sleep(1)
    reply = urllib.request.urlopen(model.base_url.removesuffix("/v1") + "/hello").read().decode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    with socket.socket(socket.AF_UNIX) as to_server:
        refused = to_server.connect_ex("/run/trialgate/server.sock") == errno.ECONNREFUSED
    return {"reply": reply, "processes": len(pids), "trials": os.listdir("/trials"), "refused": refused}`);
      const both = await Promise.all(['one', 'two'].map((trialId) => trial({ trialId })));
      // The processes are the first one, the relay and the agent.
      expect(both.map(({ result }) => result)).toEqual(
        ['one', 'two'].map((name) => ({ reply: `/${name}/hello`, processes: 3, trials: [], refused: true })),
      );
      expect(both[0]?.process).toMatchObject({ gatewayFailures: 0, signal: null, exitCode: 0 });
    });

    test.each([
      ['raises', 'raise ValueError("no idea")', {}, 'the agent ended with exit code 1: ValueError: no idea'],
      ['exits', 'import sys; sys.exit(7)', {}, 'the agent ended with exit code 7'],
      ['exits with a text', 'import sys; sys.exit("no way")', {}, 'the agent ended with exit code 1: no way'],
      ['leaves a very deep folder', DEEP, {}, 'the agent ended with exit code 5'],
      ['interrupts its first process', INTERRUPTS, { output_bytes: 2000 }, 'the agent ended with exit code 6'],
      ['dies by a signal', 'os.kill(os.getpid(), 9)', {}, 'the agent ended with exit code 137'],
      ['runs too long', 'import time; time.sleep(60)', { seconds: 1 }, 'the agent used up its time'],
      ['takes too much memory', 'x = bytearray(2 ** 30)', { memory_mb: 256 }, 'MemoryError'],
      [
        'prints too much and raises',
        'print("x" * 10 ** 6); raise ValueError("too late")',
        { output_bytes: 1000 },
        'the agent ended with exit code 1: ValueError: too late',
      ],
      ['starts too many processes', 'while True: os.fork()', { processes: 8 }, 'BlockingIOError'],
    ])(
      'a function that %s ends its own trial, and the next one is a fork of the same process',
      async (_, body, limits, reason) => {
        const { trial } = await agentOf(`${IMPORTED}
def run(task):
    if os.environ["OPENAI_API_KEY"].endswith("bad"):
        ${body}
    return IMPORT`);
        const before = (await trial()).result;
        const bad = await trial({ trialId: 'bad', limits });
        const ending = reason === 'the agent used up its time' ? 'timed_out' : 'agent_error';
        expect(bad).toMatchObject({ ending, reason: expect.stringContaining(reason), result: null });
        expect(await trial()).toMatchObject({ ending: 'done', result: before });
      },
    );

    test('a trial ends although its pool of threads is still open', async () => {
      const { trial } = await agentOf(`
from concurrent.futures import ThreadPoolExecutor
def run(task):
    global pool
    pool = ThreadPoolExecutor(2)
    return pool.submit(lambda: 7).result()`);
      expect(await trial({ limits: { seconds: 60 } })).toMatchObject({ ending: 'done', result: 7 });
    });

    test('a trial that is cancelled during the import ends, and later trials share that import', async () => {
      const controller = new AbortController();
      const { trial } = await agentOf(`${IMPORTED}import time\ntime.sleep(2)\ndef run(task): return IMPORT`);
      const first = trial({ trialId: 'first', signal: controller.signal });
      await sleep(500);
      controller.abort();
      expect((await first).ending).toBe('cancelled');
      const [second, third] = [await trial({ trialId: 'second' }), await trial({ trialId: 'third' })];
      expect(second.result).toBe(third.result);
    });

    test('everything that a trial prints is kept, also by threads and at exit, and the processes that it leaves end with it', async () => {
      const mark = `3600.${Math.floor(Math.random() * 1e9)}`;
      const { trial } = await agentOf(`
import subprocess, sys
def run(task):
    subprocess.Popen(["setsid", "sleep", "${mark}"])
    import atexit, threading, time
    atexit.register(print, "at exit", flush=True)
    threading.Thread(target=lambda: (time.sleep(0.3), print("a thread"))).start()
    print("a line")
    subprocess.run(["sh", "-c", "echo of a child > /dev/stderr"])
    sys.stdout.write("the end")`);
      expect((await trial()).process).toMatchObject({
        stdout: 'a line\nthe enda thread\nat exit\n',
        stderr: 'of a child\n',
        exitCode: 0,
      });
      expect((await commandLines()).filter(({ line }) => line.includes(mark))).toEqual([]);
    });

    test('a trial can import its packages while it runs, also from a folder below /tmp', async () => {
      const { trial } = await agentOf(
        `
import pathlib, sys
def run(task):
    pathlib.Path("/tmp/own").touch()
    mounts = [line.split()[4] for line in open("/proc/self/mountinfo")]
    sys.path += [folder for folder in mounts if folder.endswith("/packages")]
    import late
    return late.VALUE`,
        {},
        { 'late.py': 'VALUE = "imported late"' },
      );
      expect(await trial()).toMatchObject({ ending: 'done', result: 'imported late' });
    });

    test('a trial that is cancelled ends at once', async () => {
      const controller = new AbortController();
      const { trial } = await agentOf(
        'import pathlib, time\ndef run(task):\n    print("here", flush=True)\n    time.sleep(60)',
      );
      const running = trial({ signal: controller.signal });
      await sleep(1500);
      controller.abort();
      expect((await running).ending).toBe('cancelled');
    });

    test('when the warm process is killed, its running trials end, and the next trial gets a new process', async () => {
      const { trial, file } = await agentOf(`${IMPORTED}import time
def run(task):
    if os.environ["OPENAI_API_KEY"].endswith("long"): time.sleep(60)
    return IMPORT`);
      const before = (await trial()).result;
      const running = trial({ trialId: 'long' });
      await sleep(1000);
      const server = (await pythonProcesses(file)).toSorted((a, b) => a - b)[0];
      process.kill(server ?? NaN, 'SIGKILL');
      expect(await running).toMatchObject({ ending: 'agent_error', process: { signal: 'SIGKILL' } });
      const after = (await trial()).result;
      expect(after).toBeTypeOf('string');
      expect(after).not.toBe(before);
    });

    test('when the process that starts the sandboxes is killed, the next warm process removes the sandbox of the one before', async () => {
      const { trial, home } = await agentOf('def run(task): return 1');
      const servers = async () =>
        (await readdir(join(home, 'sandboxes'))).filter((name) => name.startsWith('fork-server-'));
      await trial();
      const before = await servers();
      const children = new Set(processTable().flatMap(({ pid, parent }) => (parent === process.pid ? [pid] : [])));
      const launcher = (await commandLines()).find(
        ({ pid, line }) => children.has(pid) && line.includes('launcher-process.ts'),
      );
      process.kill(launcher?.pid ?? NaN, 'SIGKILL');
      // Until this process has noticed the launcher's end.
      await expect.poll(() => processTable().some(({ pid }) => pid === launcher?.pid)).toBe(false);
      expect((await trial({ trialId: 'next' })).result).toBe(1);
      expect([before.length, (await servers()).length]).toEqual([1, 1]);
      expect(await servers()).not.toEqual(before);
    });
  },
);

/** Returns the process that imported this file, and its forks. */
const pythonProcesses = async (file: string): Promise<number[]> =>
  (await commandLines()).filter(({ line }) => /^\S*python/.test(line) && line.includes(file)).map(({ pid }) => pid);

const commandLines = async (): Promise<{ pid: number; line: string }[]> =>
  Promise.all(
    listPids().map(async (pid) => ({
      pid,
      line: (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).replaceAll('\0', ' '),
    })),
  );

test.each(['os.environ.get("KEY")', 'dict(os.environ)', 'os.path.expandvars("$KEY")'])(
  'what an import reads of a trial’s variables is noted with the line that reads it: %s',
  async (reads) => {
    const program = `
import fork_server
with fork_server.noting_reads(["KEY"]) as read:
    exec(compile('import os\\n${reads}', "/library.py", "exec"))
print(read)`;
    const env = { PYTHONPATH: import.meta.dirname, PYTHONDONTWRITEBYTECODE: '1' };
    const { stdout } = await promisify(execFile)(isolation.python.executable, ['-c', program], { env });
    expect(stdout).toBe("{'KEY': '/library.py, line 2'}\n");
  },
);
