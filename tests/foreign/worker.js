// A worker in Node by docs/reference/worker-protocol.md, with three slots, for `txtasks_verify --worker`. Package: pg.
"use strict";
const fs = require("fs"), os = require("os"), path = require("path"), { Client } = require("pg");

const page = fs.readFileSync(path.join(__dirname, "../../docs/reference/worker-protocol.md"), "utf8");
const SQL = Object.fromEntries([...page.matchAll(/```postgresql\n-- (\w+)\n([\s\S]*?)```/g)].map((m) => [m[1], m[2]]));
// several tasks at a time: last chances stay with other workers
SQL.claim = SQL.claim.replace("AND attempt <", "AND (crashes = 0 OR crashes < max_crashes - 1) AND attempt <");
const url = process.env.DATABASE_URL, queue = process.env.TXTASKS_QUEUE, lease = Number(process.env.TXTASKS_LEASE);
const SLOTS = 3, PAUSE = 200;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const functions = {
  "conformance.echo": async (session, value) => value,
  "conformance.fail": async (session, text, seconds) => { await pause(seconds * 1000); throw new Error(text); },
  "conformance.work": async (session, key, seconds) => {
    await session.query("INSERT INTO conformance (key) VALUES ($1)", [key]);
    await pause(seconds * 1000);
    return key;
  },
};
const names = Object.keys(functions);

// pg numbers its parameters: %(name)s becomes $1, $2, ...
function execute(session, name, values) {
  const order = [];
  const text = SQL[name].replace(/%\((\w+)\)s/g, (_, key) => {
    if (!order.includes(key)) order.push(key);
    return `$${order.indexOf(key) + 1}`;
  });
  return session.query(text, order.map((key) => values[key]));
}

async function connect() {
  const session = new Client({ connectionString: url });
  session.on("error", () => {}); // the next query fails, too
  await session.connect();
  return session;
}

let stopping = false;
process.on("SIGTERM", () => { stopping = true; });

async function serve(sessions) {
  const [main, pulse, ...free] = sessions, busy = new Set();
  const lists = { queues: JSON.stringify([queue]), names: JSON.stringify(names) };
  const registered = await execute(main, "register", { host: os.hostname(), pid: process.pid, lease, ...lists });
  const worker = registered.rows[0].id;
  let lost = false;
  const beats = setInterval(async () => {
    const done = await execute(pulse, "beat", { worker, running: busy.size }).catch(() => ({ rowCount: 0 }));
    if (!done.rowCount) lost = true;
  }, PAUSE);
  try {
    while (!stopping && !lost) {
      const limit = free.length;
      for (const task of limit ? await claim(main, worker, limit) : []) {
        if (stopping) { await execute(main, "release", { id: task.id, attempt: task.attempt, worker }); continue; }
        const session = free.pop();
        const one = run(session, worker, task).catch(() => { lost = true; }).then(() => { busy.delete(one); free.push(session); });
        busy.add(one);
      }
      await pause(PAUSE / 2);
    }
    await Promise.all(busy);
    await execute(main, "leave", { worker });
  } finally {
    clearInterval(beats);
  }
}

async function claim(main, worker, limit) {
  await main.query("BEGIN");
  await main.query("SET LOCAL idle_in_transaction_session_timeout = '5s'");
  if (!(await execute(main, "beat", { worker, running: SLOTS - limit })).rowCount) throw new Error("declared lost");
  const claimed = await execute(main, "claim", { worker, queue, names, limit });
  await main.query("COMMIT");
  return claimed.rows;
}

async function run(session, worker, task) {
  const fence = { id: task.id, attempt: task.attempt, worker };
  try {
    await session.query("BEGIN");
    const result = JSON.stringify(await functions[task.task_name](session, ...task.args));
    const done = await execute(session, "finish", { ...fence, result });
    await session.query(done.rowCount ? "COMMIT" : "ROLLBACK");
  } catch (error) {
    await session.query("ROLLBACK");
    const end = task.failures + 1 < task.max_attempts ? "retry" : "bury";
    const told = { type: error.name, message: error.message.slice(0, 1000), delay: 5 * 2 ** task.failures };
    await execute(session, end, { ...fence, ...told });
  }
}

async function main() {
  while (!stopping) {
    let sessions = [];
    try {
      sessions = await Promise.all(Array.from({ length: SLOTS + 2 }, connect));
      await serve(sessions);
    } catch (error) { // a cleaner ends the session of a lost worker: connect and register again
      console.log(error.message);
      await pause(PAUSE);
    } finally {
      sessions.forEach((one) => one.end().catch(() => {})); // not awaited: an ended session does not answer
    }
  }
}

main();
