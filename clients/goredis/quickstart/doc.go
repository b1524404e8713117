// Quickstart is the first lock that the README shows, on go-redis.
package main
