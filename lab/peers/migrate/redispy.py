"""A lock of redis-py for migrate_test.go to command."""
import sys


def main(url, key, ttl):
    import redis

    lock = redis.Redis.from_url(url).lock(key, timeout=float(ttl))
    print("ready", flush=True)
    for command in sys.stdin:
        try:
            match command.strip():
                case "try":
                    reply = "ok" if lock.acquire(blocking=False) else "taken"
                case "extend":
                    reply = "ok" if lock.reacquire() else "no"
                case "release":
                    lock.release()
                    reply = "ok"
        except redis.exceptions.LockError as e:
            reply = f"lost: {e}"
        except redis.exceptions.RedisError as e:
            reply = f"error: {e}"
        print(reply, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
