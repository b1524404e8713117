// Package locks has the locks of the exercises, a file each. Each has one mistake: find it, and put it right.
// docs/learn/exercises.md says how, and package redis what a lock can do with a server.
package locks
