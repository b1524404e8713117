// Package fences is the Lua that numbers holds, for the scripts of luascript, fairqueue, semaphore and rwlock. The first
// two may take the same lock, so both must number alike.
package fences

import _ "embed"

// Numbers are the numbers of the next holds.
//
//go:embed numbers.lua
var Numbers string
