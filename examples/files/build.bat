@echo off
setlocal enabledelayedexpansion

set TARGET=%1
if "%TARGET%"=="" set TARGET=release

if not exist out mkdir out

for %%f in (src\*.c) do (
    echo compiling %%f
    cl /nologo /c /Foout\ %%f
    if errorlevel 1 goto failed
)

link /nologo /out:out\lantern.exe out\*.obj
copy /y README.txt out\ >nul
goto end

:failed
echo build failed
exit /b 1

:end
endlocal
