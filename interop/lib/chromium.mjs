// Chromium without a window.
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

// The first is what Debian's script of that name starts, and leaves alone when it is killed itself.
const program = ['/usr/lib/chromium/chromium-headless-shell', 'chromium-headless-shell', 'chromium'].find((name) => spawnSync(name, ['--version']).status === 0)

/** Why there is no browser; undefined if there is one. In CI there has to be one. */
export function noChromium() {
  if (program || process.env.CI === 'true') return undefined
  return 'Chromium is not installed: make services, or install chromium'
}

/** Opens a page: {close()}. */
export function openPage(url) {
  const profile = mkdtempSync(join(tmpdir(), 'chromium-'))
  const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-port=0', `--user-data-dir=${profile}`, url]
  const child = spawn(program, args, { stdio: 'ignore' }) // without the port it would close when the page has loaded
  child.on('close', () => rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }))
  return { close: () => child.kill() }
}
