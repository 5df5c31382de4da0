// A runlog of its own: one process, with an agent of kind agui for each of a
// server's agents.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const binary = process.env.RUNLOG_BINARY
assert(binary, 'RUNLOG_BINARY is not set: run these tests by go test ./interop')

async function freePort() {
  const s = createServer()
  await once(s.listen(0, '127.0.0.1'), 'listening')
  const { port } = s.address()
  await new Promise((ok) => s.close(ok))
  return port
}

/** Starts `runlog dev`; kill() is kill -9, start() begins it again on the same data. */
export async function startRunlog(serverURL, names) {
  const dir = mkdtempSync(join(tmpdir(), 'runlog-remote-'))
  for (const name of names) writeFileSync(join(dir, `${name}.yaml`), `name: ${name}\nkind: agui\nagui: {url: "${serverURL}/${name}", idle_timeout: 20s}\n`)
  const port = await freePort()
  const r = { url: `http://127.0.0.1:${port}` }
  let child
  r.start = async () => {
    child = spawn(binary, ['dev', '--agents', dir, '--data', join(dir, 'data'), '--listen', `127.0.0.1:${port}`], { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, RUNLOG_LEASE: '4s' } })
    let said = ''
    child.stderr.setEncoding('utf8').on('data', (s) => (said += s))
    for (let end = Date.now() + 60_000; ; await new Promise((ok) => setTimeout(ok, 20))) {
      if (await fetch(`${r.url}/readyz`).then((a) => a.ok, () => false)) return
      assert(child.exitCode === null && Date.now() < end, `runlog dev is not ready: ${said}`)
    }
  }
  r.kill = async () => {
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }
  r.stop = async () => {
    await r.kill()
    rmSync(dir, { recursive: true, force: true })
  }
  await r.start()
  return r
}
