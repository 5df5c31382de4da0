// The two programs under test, each one process that does any number of runs.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { createInterface } from 'node:readline'

const here = new URL('.', import.meta.url).pathname

const programs = {
  java: { argv: ['java', '-XX:TieredStopAtLevel=1', here + 'Client.java'], probe: ['java', '--list-modules'], has: /jdk\.compiler/, hint: 'install a JDK of version 17 or later' },
  python: { argv: ['python3', here + 'client.py'], probe: ['python3', '--version'], has: /Python 3\.\d\d/, hint: 'install Python 3.10 or later' },
}

/** Why a program cannot be run here; in CI that is a failure. */
export function missing(name) {
  const { probe, has, hint } = programs[name]
  const r = spawnSync(probe[0], probe.slice(1), { encoding: 'utf8' })
  if (has.test(r.stdout ?? '')) return false
  assert(process.env.CI !== 'true', `${name}: ${hint}`)
  return hint
}

/** Starts a program: .run(job) resolves to the state that a run led it to. */
export function start(name) {
  const { argv } = programs[name]
  const child = spawn(argv[0], argv.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] })
  const waiting = new Map()
  const over = (why) => { for (const [, { no }] of waiting) no(new Error(why)) }
  child.on('exit', (code) => over(`${name} ended with ${code}`))
  child.on('error', (e) => over(String(e)))
  createInterface({ input: child.stdout }).on('line', (line) => {
    const { n, state, failed } = JSON.parse(line)
    const { ok, no } = waiting.get(n)
    waiting.delete(n)
    state ? ok(state) : no(new Error(failed))
  })
  let jobs = 0
  return {
    run({ urls, params, slow = 0 }) {
      const n = ++jobs
      const state = new Promise((ok, no) => waiting.set(n, { ok, no }))
      child.stdin.write(JSON.stringify({ n, urls, params, slow }) + '\n')
      return state
    },
    stop() {
      child.stdin.end()
      return new Promise((ok) => child.on('exit', ok))
    },
  }
}
