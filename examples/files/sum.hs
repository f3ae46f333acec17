module Main (main) where

import qualified Data.Map.Strict as Map
import System.Environment (getArgs)

data Entry = Entry
  { entryName :: String
  , entryCents :: Int
  } deriving (Eq, Show)

parseLine :: String -> Maybe Entry
parseLine line = case words line of
  [name, cents] -> Just (Entry name (read cents))
  _ -> Nothing

totals :: [Entry] -> Map.Map String Int
totals = foldr step Map.empty
  where
    step entry = Map.insertWith (+) (entryName entry) (entryCents entry)

main :: IO ()
main = do
  [path] <- getArgs
  content <- readFile path
  let entries = [entry | Just entry <- map parseLine (lines content)]
  mapM_ print (Map.toList (totals entries))
