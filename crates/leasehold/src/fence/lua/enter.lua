
-- enter: raises the marks and leaves the guarded key alone.
--
-- RETURNS  DONE
raise()
return 'DONE'
