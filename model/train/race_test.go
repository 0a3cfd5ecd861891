//go:build race

package train

const underRace = true
