// A program in another language that does jobs: a line of JSON with n and the job goes in, a line
// {n, state} or {n, failed} comes back.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

/** Starts a program: .run(job) resolves to the state that the job led to. */
export function program(argv) {
  const child = spawn(argv[0], argv.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] })
  const waiting = new Map()
  const over = (why) => { for (const { no } of waiting.values()) no(new Error(why)) }
  child.on('exit', (code) => over(`${argv[0]} ended with ${code}`))
  child.on('error', (e) => over(String(e)))
  createInterface({ input: child.stdout }).on('line', (line) => {
    const { n, state, failed } = JSON.parse(line)
    const { ok, no } = waiting.get(n)
    waiting.delete(n)
    state ? ok(state) : no(new Error(failed))
  })
  let jobs = 0
  return {
    run(job) {
      const n = ++jobs
      child.stdin.write(JSON.stringify({ n, ...job }) + '\n')
      return new Promise((ok, no) => waiting.set(n, { ok, no }))
    },
    stop() {
      child.stdin.end()
      return new Promise((ok) => child.on('exit', ok))
    },
  }
}
