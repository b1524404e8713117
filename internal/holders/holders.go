// Package holders is the Lua of locks that several may hold at a time.
package holders

import _ "embed"

// Lua keeps the holders of a lock in a sorted set.
//
//go:embed holders.lua
var Lua string
