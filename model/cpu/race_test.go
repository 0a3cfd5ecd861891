//go:build race

package cpu

// underRace: the race detector makes sync.Pool forget at random.
const underRace = true
