-- The server's clock.

return string.format('%.0f', NOW)
