// Measures redis-semaphore's Mutex like the benchmark's own systems: it gets the same tasks in the same protocol. See
// README.md, "The protocol of a worker". The libraries are installed in target/, where `run` makes node search for them.
'use strict';

const readline = require('node:readline');
const Redis = require('ioredis');
const { Mutex, TimeoutError } = require('redis-semaphore');

// The delay of redis-semaphore-fast, or another one to be tried. The README explains the choice.
const FAST_MS = Number(process.env.PEER_RETRY_MS ?? 2);

const SYSTEMS = {
  'redis-semaphore': {
    options: {},
    settings: 'defaults: retry after 10 ms, lockTimeout 10s renewed every 8s, acquireTimeout 10s and then again',
  },
  'redis-semaphore-fast': {
    options: { retryInterval: FAST_MS },
    settings: `retry after ${FAST_MS} ms, lockTimeout 10s renewed every 8s, acquireTimeout 10s and then again`,
  },
};

function about() {
  const version = (name) => require(`${name}/package.json`).version;
  const versions = `${version('redis-semaphore')}, ioredis ${version('ioredis')}, node ${process.version}`;
  const one = ([system, { settings }]) => [system, { version: versions, settings: `${settings}; one connection` }];
  return { systems: Object.fromEntries(Object.entries(SYSTEMS).map(one)) };
}

const now = () => Number(process.hrtime.bigint() / 1000n);

function cpuUs() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

// The greatest wait of the same bucket: eight binary digits, so less than one percent off.
function bucket(us) {
  let [digits, scale] = [us, 1];
  while (digits >= 256) {
    [digits, scale] = [Math.floor(digits / 2), scale * 2];
  }
  return (digits + 1) * scale - 1;
}

class Worker {
  constructor(spec) {
    this.spec = spec;
    this.system = SYSTEMS[spec.system];
    if (!this.system) throw new Error(`no such system here: "${spec.system}"`);
    [[this.use, this.prefix]] = Object.entries(spec.names);
    const { window, pairs } = spec.span;
    this.pairs = pairs ? pairs.each : Infinity;
    this.fromUs = window ? window.warm_up_ms * 1000 : 0;
    this.toUs = window ? this.fromUs + window.window_ms * 1000 : Infinity;
    // After this time a run counts as hanging: no lock waits for as long.
    this.limitMs = 60_000 + (window ? window.warm_up_ms + window.window_ms : pairs.each * 20);
  }

  async connect() {
    const connection = async () => {
      const made = new Redis(this.spec.url, { lazyConnect: true, retryStrategy: () => null });
      made.on('error', fail);
      await made.connect();
      return made;
    };
    this.client = await connection();
    // A connection apart from the lock's, as in every worker.
    this.counter = this.spec.counter && (await connection());
    return this;
  }

  lock(name) {
    return new Mutex(this.client, name, { ...this.system.options, onLockLost: fail });
  }

  keptLock(task) {
    if (this.use === 'one') return this.lock(this.prefix);
    if (this.use === 'per-task') return this.lock(`${this.prefix}:${task}`);
    return null;
  }

  async allTasks() {
    const hung = setTimeout(() => fail(new Error('the run did not end')), this.limitMs);
    const started = now();
    const tasks = Array.from({ length: this.spec.tasks }, (_, task) => this.oneTask(task, started));
    const tallies = await Promise.all(tasks);
    clearTimeout(hung);
    return tallies;
  }

  async oneTask(task, started) {
    const kept = this.keptLock(task);
    const tally = { served: 0, pairs: 0, waits: new Map() };
    while (tally.pairs < this.pairs && now() - started < this.toUs) {
      const lock = kept ?? this.lock(`${this.prefix}:${task}:${tally.pairs}`);
      const asked = now();
      await acquire(lock);
      const waited = bucket(now() - asked);
      if (this.counter) await this.countUp();
      await lock.release();
      tally.pairs += 1;
      const at = now() - started;
      if (at >= this.fromUs && at < this.toUs) {
        tally.served += 1;
        tally.waits.set(waited, (tally.waits.get(waited) ?? 0) + 1);
      }
    }
    return tally;
  }

  async countUp() {
    const count = await this.counter.get(this.spec.counter);
    await this.counter.set(this.spec.counter, Number(count ?? 0) + 1);
  }

  async measure() {
    const [begun, cpuBefore] = [now(), cpuUs()];
    const tallies = await this.allTasks();
    const cpu_us = cpuUs() - cpuBefore;
    const counted_us = this.spec.span.window ? this.spec.span.window.window_ms * 1000 : now() - begun;
    const waits = new Map();
    for (const [us, count] of tallies.flatMap((tally) => [...tally.waits])) {
      waits.set(us, (waits.get(us) ?? 0) + count);
    }
    const served = tallies.map((tally) => tally.served);
    const pairs = tallies.reduce((sum, tally) => sum + tally.pairs, 0);
    return { served, pairs, counted_us, cpu_us, waits: [...waits] };
  }
}

// It gives up after its acquireTimeout. The task of a benchmark tries again, and its wait goes on.
async function acquire(lock) {
  for (;;) {
    try {
      return await lock.acquire();
    } catch (error) {
      if (!(error instanceof TimeoutError)) throw error;
    }
  }
}

function fail(error) {
  console.error(`node peer: ${error.message}`);
  process.exit(1);
}

async function main() {
  if (process.argv[2] === '--about') {
    console.log(JSON.stringify(about()));
    return;
  }
  const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const worker = await new Worker(JSON.parse((await input.next()).value)).connect();
  if (worker.use === 'used') await worker.allTasks();
  console.log('ready');
  if ((await input.next()).value?.trim() !== 'go') throw new Error('the run was aborted');
  console.log(JSON.stringify(await worker.measure()));
  process.exit(0);
}

main().catch(fail);
